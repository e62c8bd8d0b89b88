"""The distributed optimizer's buffers, laid out by hand, and states that are not understood."""

import argparse

import pytest
import torch

from megalite.convert.command import main
from megalite.convert.formats import open_checkpoint
from megalite.convert.megatron.distributed import DISTRIBUTED, Buckets, _places
from megalite.convert.megatron.files import RankFile
from megalite.convert.megatron.layout import OUTPUT, WORDS, Grid, RankKey, grid_of
from megalite.convert.megatron.optimizer import read_state
from megalite.errors import CheckpointError
from tests.convert.conftest import LLAMA_MODEL, save_run


def key(name: str, chunk: int = 0) -> RankKey:
    return RankKey(0, 0, chunk, name)


SHAPES = {key(WORDS): (10, 10), key("a.bias"): (7,), key("b.weight"): (6, 5)}


def test_one_bucket_holds_the_parameters_in_reverse_from_multiples_of_64():
    places, size = _places(SHAPES, Buckets(None))
    assert places == {key("b.weight"): 0, key("a.bias"): 64, key(WORDS): 128} and size == 228


def test_gaps_between_buckets_are_not_stored():
    places, size = _places(SHAPES, Buckets(30))
    # b.weight fills the first bucket; the second begins right after its 30 elements, and counts from there.
    assert places == {key("b.weight"): 0, key("a.bias"): 30, key(WORDS): 94} and size == 194


def test_a_tied_matrix_has_a_bucket_of_its_own():
    places, size = _places(SHAPES, Buckets(None, frozenset((WORDS, OUTPUT))))
    assert places == {key("b.weight"): 0, key("a.bias"): 64, key(WORDS): 71} and size == 171
    assert Buckets.of({"untie_embeddings_and_output_weights": False}, pp=1, stages=2).alone == {WORDS, OUTPUT}
    assert Buckets.of({"untie_embeddings_and_output_weights": False}, pp=0, stages=1).alone == frozenset()


def test_overlap_decides_the_size_of_buckets():
    overlapped = {"overlap_grad_reduce": True, "data_parallel_size": 64}
    assert Buckets.of(overlapped, pp=0, stages=2).size == 64_000_000
    assert Buckets.of({**overlapped, "data_parallel_size": 8}, pp=0, stages=2).size == 40_000_000
    assert Buckets.of({**overlapped, "ddp_bucket_size": 123}, pp=0, stages=2).size == 123
    assert Buckets.of(overlapped, pp=1, stages=2).size is None
    assert Buckets.of({"overlap_grad_reduce": False}, pp=0, stages=1).size is None


def _to_distributed(directory) -> None:
    """Move the plain optimizer's state of each rank to the distributed one's file: what Megatron-LM would have
    written."""
    for path in directory.rglob("model_optim_rng.pt"):
        content = torch.load(path, weights_only=False)
        state, main_params = content["optimizer"]["optimizer"], content["optimizer"]["fp32_from_fp16_params"]
        order = {True: [], False: []}
        for name, tensor in content["model"].items():
            order[tensor.ndim > 1].append(name)
        by_name = {}
        for group, mains, names in zip(state["param_groups"], main_params, (order[True], order[False])):
            for number, main_param, name in zip(group["params"], mains, names):
                by_name[name] = {**state["state"][number], "param": main_param}
        flat = {slot: torch.zeros(0) for slot in ("param", "exp_avg", "exp_avg_sq")}
        for name in reversed(content["model"]):
            for slot in flat:
                gap = torch.zeros(-len(flat[slot]) % 64)
                flat[slot] = torch.cat([flat[slot], gap, by_name[name][slot].flatten()])
        buffer = {**flat, "numel_unpadded": len(flat["param"])}
        torch.save(
            {"buckets_coalesced": True, 0: {(torch.bfloat16, torch.float32): buffer}}, path.with_name(DISTRIBUTED)
        )
        groups = [{name: value for name, value in group.items() if name != "params"} for group in state["param_groups"]]
        content["optimizer"] = {"optimizer": {"param_groups": groups}}
        torch.save(content, path)


@pytest.fixture
def distributed(tmp_path):
    """A run of ours, and its checkpoint as Megatron-LM's distributed optimizer writes it on 2 x 2 ranks."""
    run = save_run(tmp_path / "run", LLAMA_MODEL, "bfloat16")
    cut = ["--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2"]
    main(["--load-dir", str(run), "--save-dir", str(tmp_path / "cut"), "--save-format", "megatron", *cut])
    _to_distributed(tmp_path / "cut")
    return run, tmp_path / "cut"


def test_the_distributed_optimizer_is_read(distributed):
    run, cut = (open_checkpoint(directory) for directory in distributed)
    assert run.names() == cut.names() and cut.meta["num_updates"] == 5
    for name in run.names():
        assert torch.equal(run.read(name), cut.read(name)), name


def test_the_distributed_optimizer_is_written_as_it_was_read(distributed, tmp_path):
    run, cut = distributed
    shape = ["--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2"]
    command = ["--load-dir", str(run), "--save-dir", str(tmp_path / "out"), "--save-format", "megatron", *shape]
    main([*command, "--target-distributed-optimizer"])
    for path in cut.rglob("*.pt"):
        expected = torch.load(path, weights_only=False)
        written = torch.load(tmp_path / "out" / path.relative_to(cut), weights_only=False)
        if path.name != DISTRIBUTED:
            assert written["optimizer"] == expected["optimizer"] and written["args"].use_distributed_optimizer
            continue
        ((kind, buffer),) = expected[0].items()
        assert written[0].keys() == {kind} and written[0][kind]["numel_unpadded"] == buffer["numel_unpadded"]
        assert all(torch.equal(written[0][kind][slot], buffer[slot]) for slot in ("param", "exp_avg", "exp_avg_sq"))


def test_float32_parameters_are_their_own_main_ones(tmp_path, trained):
    command = ["--load-dir", str(trained), "--save-dir", str(tmp_path / "out"), "--save-format", "megatron"]
    main([*command, "--target-distributed-optimizer"])
    (path,) = tmp_path.rglob(DISTRIBUTED)
    ((_, buffer),) = torch.load(path, weights_only=False)[0].items()
    run, written = open_checkpoint(trained), open_checkpoint(tmp_path / "out")
    first = run.read("embedding.word.weight").flatten()  # The last of the buffer, before 27 rows of padding.
    assert torch.equal(buffer["param"][-128 * 24 :][: first.numel()], first)
    assert run.names() == written.names()
    assert all(torch.equal(run.read(name), written.read(name)) for name in run.names())


def test_buffers_of_another_size_are_refused_and_can_be_left(distributed, tmp_path):
    _, cut = distributed
    path = next(cut.rglob("mp_rank_01_001")) / DISTRIBUTED
    content = torch.load(path, weights_only=False)
    content[0][torch.bfloat16, torch.float32]["numel_unpadded"] += 1
    torch.save(content, path)
    convert = ["--load-dir", str(cut), "--save-dir", str(tmp_path / "out"), "--save-format", "megalite"]
    with pytest.raises(CheckpointError, match="buffer of model chunk 0 must have .* elements; .*add --drop-optimizer"):
        main(convert)
    torch.save({"buckets_coalesced": False}, path)
    with pytest.raises(CheckpointError, match="must hold coalesced buckets"):
        main(convert)
    assert main([*convert, "--drop-optimizer"]) == 0


def _rank_file(tmp_path, optimizer) -> RankFile:
    """A rank's file with the given optimizer in it."""
    path = tmp_path / "model_optim_rng.pt"
    content = {"args": argparse.Namespace(), "checkpoint_version": 3.0, "model": {}, "optimizer": optimizer}
    torch.save(content, path)
    return RankFile(path, 0, 0)


@pytest.mark.parametrize("optimizer, message", [
    ([{}, {}], "must hold the state of one optimizer"),
    ({"param_groups": [], "state": {}}, "with weight decay, of 2 parameters, and one without, of 1; its groups have"),
    (
        {"param_groups": [{"wd_mult": 1.0, "params": [0, 1, 2]}, {"wd_mult": 0.0, "params": []}], "state": {}},
        "its groups have .3, 0.",
    ),
    (
        {
            "param_groups": [{"wd_mult": 1.0, "params": [0, 1]}, {"wd_mult": 0.0, "params": [2]}],
            "state": {0: {"exp_avg": torch.ones(3)}},
        },
        "exp_avg of embedding.word_embeddings.weight must have shape .10, 10.; it has .3,.",
    ),
])  # fmt: skip
def test_states_that_do_not_fit_are_refused(tmp_path, optimizer, message):
    with pytest.raises(CheckpointError, match=message):
        read_state(_rank_file(tmp_path, optimizer), SHAPES, stages=1)


def test_uneven_splits_are_found_from_the_files():
    layers = {(0, 0): 1, (0, 1): 3, (1, 0): 2, (1, 1): 0}
    keys = [
        RankKey(0, pp, chunk, f"decoder.layers.{local}.input_layernorm.weight")
        for (chunk, pp), count in layers.items()
        for local in range(count)
    ] + [RankKey(0, 1, 1, OUTPUT)]
    grid = grid_of(keys, tp=1, pp=2)
    assert grid == Grid(1, 2, (1, 3, 2, 0), "local")
    assert [(pp, chunk, list(layers)) for pp, chunk, layers in grid.stages()] == [
        (0, 0, [0]),
        (1, 0, [1, 2, 3]),
        (0, 1, [4, 5]),
        (1, 1, []),
    ]

import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file

from megalite.checkpoint.index import INDEX
from megalite.checkpoint.piece import Piece, flat_pieces
from megalite.checkpoint.store import META, open_store
from megalite.errors import CheckpointError
from megalite.state import Box, Init, ParamSpec
from tests.checkpoint.cuts import DTYPES, cut, empty_like, filled, partitions, write_checkpoint

SHARD = "shard_00000.safetensors"
shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@st.composite
def cases(draw):
    shape = draw(shapes)
    tensor = filled(shape, draw(st.sampled_from(DTYPES)))
    return tensor, draw(partitions(shape)), draw(partitions(shape)), draw(st.integers(1, 4))


@given(cases())
@settings(max_examples=80, deadline=None)
def test_any_partition_reads_any_other(case):
    tensor, written, wanted, num_ranks = case
    with tempfile.TemporaryDirectory() as temporary:
        pieces = cut("w", tensor, written)
        directory = write_checkpoint(Path(temporary) / "c", [pieces[rank::num_ranks] for rank in range(num_ranks)])
        store = open_store(directory)
        copies = [empty_like(piece) for piece in cut("w", tensor, wanted)]
        store.read_into(copies)
        for copy, piece in zip(copies, cut("w", tensor, wanted)):
            assert torch.equal(copy.tensor, piece.tensor)
        assert torch.equal(store.read("w"), tensor)
        assert store.shape("w") == tuple(tensor.shape) and f"torch.{store.dtype('w')}" == str(tensor.dtype)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_flat_slices_of_a_padded_shard_read_back_by_other_flat_slices(shape, writers, readers):
    """As an optimizer that is sharded over data-parallel ranks has it: equal flat slices of a padded local tensor."""
    global_shape = (shape[0] + 3,) + shape[1:]
    box = Box((2,) + (0,) * (len(shape) - 1), shape)
    spec = ParamSpec("w", global_shape, box, Init("zeros"), True)
    whole = filled(global_shape)
    local = torch.cat([whole[2 : 2 + shape[0]], torch.full((2,) + shape[1:], -7.0)]).reshape(-1)

    def slices(flat, count):
        size = -(-flat.numel() // count)
        return [flat_pieces(spec, flat[r * size : (r + 1) * size], r * size, "optim.exp_avg.w") for r in range(count)]

    above, below = (Box((row,) + box.offset[1:], (rows,) + shape[1:]) for row, rows in ((0, 2), (2 + shape[0], 1)))
    rest = cut("optim.exp_avg.w", whole, [above, below])
    with tempfile.TemporaryDirectory() as temporary:
        store = open_store(write_checkpoint(Path(temporary) / "c", slices(local, writers) + [rest]))
        copy = torch.full_like(local, -1)
        for pieces in slices(copy, readers):
            store.read_into(pieces)
        assert torch.equal(copy[: box.numel], local[: box.numel])
        assert (copy[box.numel :] == -1).all(), "padding is neither stored nor read"
        assert torch.equal(store.read("optim.exp_avg.w"), whole)


def test_a_shard_is_a_plain_safetensors_file(tmp_path):
    tensor = filled((4, 3), torch.bfloat16)
    scalar = torch.tensor(5, dtype=torch.int64)
    pieces = cut("w", tensor, [Box((1, 0), (3, 3)), Box((0, 0), (1, 3))]) + cut("n", scalar, [Box((), ())])
    directory = write_checkpoint(tmp_path / "c", [pieces])
    loaded = load_file(directory / SHARD)
    assert sorted(loaded) == ["n@", "w@0,0", "w@1,0"]
    assert torch.equal(loaded["w@1,0"], tensor[1:]) and torch.equal(loaded["n@"], scalar)


def test_tensors_without_elements_keep_their_name_and_shape(tmp_path):
    tensor = torch.zeros(0, 4)
    store = open_store(write_checkpoint(tmp_path / "c", [cut("w", tensor, [Box.whole((0, 4))]), []]))
    assert store.names() == ("w",) and store.read("w").shape == (0, 4)
    assert load_file(store.directory / SHARD) == {}


def test_reading_leaves_gradients_alone_and_fills_strided_memory(tmp_path):
    tensor = filled((3, 4))
    store = open_store(write_checkpoint(tmp_path / "c", [cut("w", tensor, [Box.whole((3, 4))])]))
    parameter = torch.nn.Parameter(torch.zeros(4, 3).t())
    store.read_into([Piece("w", (3, 4), Box.whole((3, 4)), parameter)])
    assert torch.equal(parameter, tensor) and parameter.requires_grad and parameter.is_leaf


def test_dtype_changes_only_when_asked(tmp_path):
    tensor = filled((3, 4))
    pieces = cut("w", tensor, [Box.whole((3, 4))])
    store = open_store(write_checkpoint(tmp_path / "c", [pieces]))
    copy = empty_like(pieces[0], torch.bfloat16)
    with pytest.raises(CheckpointError, match="w must be stored as bfloat16; in .* it is float32"):
        store.read_into([copy])
    store.read_into([copy], convert=True)
    assert torch.equal(copy.tensor, tensor.to(torch.bfloat16))


def test_wrong_names_and_shapes_are_errors(tmp_path):
    store = open_store(write_checkpoint(tmp_path / "c", [cut("w", filled((3, 4)), [Box.whole((3, 4))])]))
    with pytest.raises(CheckpointError, match="must contain v: it does not"):
        store.read_into(cut("v", filled((3, 4)), [Box.whole((3, 4))]))
    with pytest.raises(CheckpointError, match=r"w must have shape \(6, 4\); in .* it has \(3, 4\)"):
        store.read_into(cut("w", filled((6, 4)), [Box((0, 0), (3, 4))]))


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of two tensors in two shards."""
    tensor = filled((4, 3))
    pieces = cut("w", tensor, [Box((0, 0), (2, 3)), Box((2, 0), (2, 3))]) + cut("v", filled((5,)), [Box.whole((5,))])
    return write_checkpoint(tmp_path / "c", [pieces[:1], pieces[1:]])


def change_index(directory, change):
    raw = json.loads((directory / INDEX).read_text())
    change(raw)
    (directory / INDEX).write_text(json.dumps(raw))


def test_truncated_and_missing_files_are_named_on_opening(checkpoint):
    path = checkpoint / SHARD
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    (checkpoint / "shard_00001.safetensors").unlink()
    with pytest.raises(CheckpointError) as caught:
        open_store(checkpoint)
    assert f"{SHARD} must have {size} bytes, it has {size - 1}" in str(caught.value)
    assert "shard_00001.safetensors: No such file or directory" in str(caught.value)


def test_a_damaged_header_names_the_file(checkpoint):
    data = bytearray((checkpoint / SHARD).read_bytes())
    data[9] ^= 0x40
    (checkpoint / SHARD).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{SHARD} is damaged"):
        open_store(checkpoint).read("w")


def test_a_flipped_bit_is_found_by_its_checksum(checkpoint):
    store = open_store(checkpoint)
    assert store.corrupt_files(store.files) == []
    data = bytearray((checkpoint / SHARD).read_bytes())
    data[-1] ^= 1
    (checkpoint / SHARD).write_bytes(data)
    assert store.corrupt_files(store.files) == [SHARD]


def test_a_file_of_another_checkpoint_is_noticed(checkpoint, tmp_path):
    pieces = cut("w", filled((4, 3), torch.float16), [Box((0, 0), (2, 3)), Box((2, 0), (2, 3))])
    other = write_checkpoint(tmp_path / "other", [pieces[:1], pieces[1:]])
    (checkpoint / SHARD).write_bytes((other / SHARD).read_bytes())
    change_index(checkpoint, lambda raw: raw["files"][SHARD].update(bytes=(other / SHARD).stat().st_size))
    message = rf"{SHARD} is damaged: w@0,0 must be \(\(2, 3\), 'float32'\) as in index.json; it is \(.* 'float16'\)"
    with pytest.raises(CheckpointError, match=message):
        open_store(checkpoint).read("w")


@pytest.mark.parametrize("change, message", [
    (lambda raw: raw.update(version=2), "must have format version 1; it has 2"),
    (lambda raw: raw.update(format="other"), "not an index of a megalite checkpoint"),
    (lambda raw: raw["tensors"]["w"].pop("shape"), r"an entry is not as the format has it \(KeyError\('shape'\)\)"),
    (lambda raw: raw["tensors"]["w"].update(shape=[3, 3]), "is outside shape"),
    (lambda raw: raw["tensors"]["w"]["boxes"][0].update(offset=[0], extent=[2]), "is outside shape"),
    (lambda raw: raw["tensors"]["w"].update(dtype="float31"), "w has dtype float31"),
    (lambda raw: raw["files"].pop(SHARD), f"w lies in {SHARD}, which is not listed"),
    (lambda raw: raw["files"].update({"../x": {"bytes": 1, "crc32": "0"}}), "is not a plain file name"),
    (lambda raw: raw["files"].pop(META), "index.json does not list meta.json"),
])
def test_an_index_that_is_not_ours_or_not_whole(checkpoint, change, message):
    change_index(checkpoint, change)
    with pytest.raises(CheckpointError, match=message):
        open_store(checkpoint)


@pytest.mark.parametrize("change, message", [
    (lambda boxes: boxes.pop(), "6 of 12 elements of .* are there"),
    (lambda boxes: boxes[1].update(offset=[1, 0]), "overlap"),
])
def test_an_index_that_does_not_cover_a_tensor(checkpoint, change, message):
    change_index(checkpoint, lambda raw: change(raw["tensors"]["w"]["boxes"]))
    with pytest.raises(CheckpointError, match=f"index.json is damaged: of w, .*{message}"):
        open_store(checkpoint).read("w")


def test_damaged_json_is_named(checkpoint):
    text = (checkpoint / INDEX).read_text()
    (checkpoint / INDEX).write_text(text[: len(text) // 2])
    with pytest.raises(CheckpointError, match="index.json is damaged: it is not JSON"):
        open_store(checkpoint)
    (checkpoint / INDEX).write_text(text)
    (checkpoint / META).write_text("x" * (checkpoint / META).stat().st_size)
    with pytest.raises(CheckpointError, match="meta.json no longer holds what was written"):
        open_store(checkpoint)


@pytest.mark.parametrize("meta", ["x", "[]", "{}", '{"iteration": "x"}'])
def test_meta_data_without_an_iteration(tmp_path, meta):
    directory = write_checkpoint(tmp_path / "c", [], meta)
    with pytest.raises(CheckpointError, match="meta.json must be a JSON object with the iteration: it is damaged"):
        open_store(directory)


@pytest.mark.parametrize("ranks, message", [
    ([[Box((0, 0), (2, 3))], [Box((3, 0), (1, 3))]], "pieces of w must cover it once: 9 of 12 elements"),
    ([[Box((0, 0), (3, 3))], [Box((2, 0), (2, 3))]], "pieces of w must cover it once: boxes .* overlap"),
    ([[Box((0, 0), (4, 3)), Box((0, 0), (4, 3))]], "two pieces of this rank claim w@0,0"),
])
def test_pieces_that_do_not_make_up_a_tensor_are_never_written(tmp_path, ranks, message):
    with pytest.raises(AssertionError, match=message):
        write_checkpoint(tmp_path / "c", [cut("w", filled((4, 3)), boxes) for boxes in ranks])


def test_ranks_must_agree_on_a_tensor(tmp_path):
    halves = [cut("w", filled((4, 3), dtype), [Box((row, 0), (2, 3))])
              for dtype, row in ((torch.float32, 0), (torch.float64, 2))]
    with pytest.raises(AssertionError, match="w: .*float32.* on one rank, .*float64.* in shard_00001"):
        write_checkpoint(tmp_path / "c", halves)


@pytest.mark.parametrize("present, message", [
    (None, "there is no such directory"),
    ([], "it is empty"),
    (["mp_rank_00"], "it looks like a checkpoint of Megatron-LM's torch format"),
    ([".metadata", "__0_0.distcp"], "it looks like a directory of torch.distributed.checkpoint; .*converts"),
    (["config.json", "model.safetensors"], "it looks like a Hugging Face model directory"),
    (["a.txt", "b.txt"], "it contains a.txt, b.txt"),
])
def test_foreign_directories_are_recognised(tmp_path, present, message):
    directory = tmp_path / "d"
    for name in present or []:
        (directory / name).mkdir(parents=True)
    if present == []:
        directory.mkdir()
    with pytest.raises(CheckpointError, match=message):
        open_store(directory)


def test_an_index_that_cannot_be_read(tmp_path):
    (tmp_path / INDEX).mkdir()
    with pytest.raises(CheckpointError, match="index.json cannot be read: Is a directory"):
        open_store(tmp_path)

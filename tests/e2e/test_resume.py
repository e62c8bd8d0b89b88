"""Resuming: bit for bit at the same layout, on the same curve at any other, never on other data or curves unasked."""

import pytest
import torch

from megalite.checkpoint.store import open_store
from megalite.errors import ConfigError
from tests.e2e.launch import curve, events, flags, printed, run, torchrun, trained

STEPS, HALF, WARMUP = 10, 5, 6
LAYOUTS = {
    "data 2, sharded optimizer": (2, {"use_distributed_optimizer": True, "overlap_grad_reduce": True}),
    "tensor 2, pipeline 2": (
        4,
        {"tensor_model_parallel_size": 2, "sequence_parallel": True, "pipeline_model_parallel_size": 2},
    ),
}
OTHERS = {
    "one process": (1, {"micro_batch_size": 4}),
    "data 3": (3, {"use_distributed_optimizer": True}),
    "tensor 2": (2, {"tensor_model_parallel_size": 2}),
    "pipeline 2 with 2 virtual stages": (
        2,
        {"pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 2},
    ),
}


def options(corpus, directory, **fields):
    """Dropout, an uneven batch, a second epoch in the second half, and a rate that rises until after the first half."""
    numbers = {
        "hidden_dropout": 0.1,
        "attention_dropout": 0.1,
        "global_batch_size": 12,
        "train_iters": STEPS,
        "lr": 1e-3,
        "lr_decay_style": "cosine",
        "lr_warmup_iters": WARMUP,
        "split": "45,30,25",
        "check_replicas": True,
        "save": directory / "checkpoints",
        "save_interval": HALF,
        "metrics_file": directory / "metrics.jsonl",
    }
    return flags(**{"data_path": corpus, **numbers, **fields})


PRECISIONS = {
    "bf16": {"bf16": True},
    # The scale falls until it fits: the first steps are skipped, the checkpoint is written amid them.
    "fp16": {"fp16": True, "initial_loss_scale": 2.0**28, "hysteresis": 1, "attention_dropout": 0},
}


def checkpoint(directory, iteration):
    """Every tensor of a checkpoint, parameters and optimizer state, by name."""
    store = open_store(directory / "checkpoints" / f"iter_{iteration:07d}")
    return {name: store.read(name) for name in store.names()}


@pytest.fixture(scope="module")
def straight(corpus, tmp_path_factory):
    """For each layout the directory of a run of all steps without a stop, which leaves a checkpoint half way."""
    directories = {}
    for name, (num_processes, layout) in LAYOUTS.items():
        directories[name] = tmp_path_factory.mktemp("straight")
        trained(num_processes, options(corpus, directories[name], **layout))
    return directories


def assert_bitwise_the_same(resumed, straight):
    expected = curve(straight / "metrics.jsonl")
    assert curve(resumed / "metrics.jsonl") == {step: expected[step] for step in range(HALF + 1, STEPS + 1)}
    tensors, others = checkpoint(resumed, STEPS), checkpoint(straight, STEPS)
    assert tensors.keys() == others.keys() and any(name.startswith("optim.") for name in tensors)
    for name in tensors:
        assert torch.equal(tensors[name], others[name]), name


@pytest.mark.parametrize("name", LAYOUTS)
def test_half_and_half_is_the_whole_bit_for_bit(straight, corpus, tmp_path, name):
    """Data read ahead by threads or not."""
    num_processes, layout = LAYOUTS[name]
    load = {"load": straight[name] / "checkpoints", "ckpt_step": HALF}
    trained(num_processes, options(corpus, tmp_path, num_workers=2, **load, **layout))
    assert_bitwise_the_same(tmp_path, straight[name])


@pytest.mark.parametrize("name", PRECISIONS)
def test_so_it_is_in_half_precision(corpus, tmp_path, name):
    """Main parameters, moments and the loss scale continue; skipped steps hold the rate back, not the data."""
    num_processes, layout = LAYOUTS["data 2, sharded optimizer"]
    fields = {**PRECISIONS[name], **layout}
    trained(num_processes, options(corpus, tmp_path / "straight", **fields))
    load = {"load": tmp_path / "straight" / "checkpoints", "ckpt_step": HALF}
    trained(num_processes, options(corpus, tmp_path / "resumed", **load, **fields))
    assert_bitwise_the_same(tmp_path / "resumed", tmp_path / "straight")
    lines = events(tmp_path / "straight" / "metrics.jsonl")
    skipped = sum(line["num_skipped"] for line in lines)
    assert HALF < skipped < STEPS if name == "fp16" else skipped == 0
    assert [line["consumed_samples"] for line in lines] == list(range(12, 12 * STEPS + 1, 12))
    rising = [line["learning_rate"] for line in lines if not line["num_skipped"]][:WARMUP]
    assert rising == pytest.approx([1e-3 * updates / WARMUP for updates in range(len(rising))])
    scales = {line["loss_scale"] for line in events(tmp_path / "resumed" / "metrics.jsonl")}
    assert scales <= {line["loss_scale"] for line in lines[HALF:]}


def test_so_it_is_by_torchrun_with_the_stop_of_exit_interval(straight, corpus, tmp_path):
    name = "data 2, sharded optimizer"
    num_processes, layout = LAYOUTS[name]
    argv = options(corpus, tmp_path, load=tmp_path / "checkpoints", **layout)
    first = printed(num_processes, [*argv, "--exit-interval", str(HALF)])
    assert first.status == 0 and f"stopped after iteration {HALF}: --exit-interval was reached" in first.out
    assert "no checkpoint in" in first.out and list(first.losses) == list(range(1, HALF + 1))
    (tmp_path / "metrics.jsonl").unlink()
    second = run(torchrun(num_processes, argv))
    assert second.status == 0 and f"loading iteration {HALF} from " in second.out
    assert list(second.losses) == list(range(HALF + 1, STEPS + 1))
    assert_bitwise_the_same(tmp_path, straight[name])


@pytest.mark.parametrize("name", OTHERS)
def test_another_layout_continues_the_curve(straight, corpus, tmp_path, name):
    num_processes, layout = OTHERS[name]
    before = straight["tensor 2, pipeline 2"]
    trained(num_processes, options(corpus, tmp_path, load=before / "checkpoints", ckpt_step=HALF, **layout))
    got, expected = curve(tmp_path / "metrics.jsonl"), curve(before / "metrics.jsonl")
    assert list(got) == list(range(HALF + 1, STEPS + 1))
    for step, values in got.items():
        assert values == pytest.approx(expected[step], rel=1e-5), f"iteration {step}"


def resuming(straight, **changes):
    """Fields that resume the run half way, with something changed."""
    return {"load": straight["tensor 2, pipeline 2"] / "checkpoints", "ckpt_step": HALF, **changes}


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"seq_length": 16}, {"split": "900,50,50"}, {"eod_mask_loss": True}, {"blend": True}],
    ids=str,
)
def test_other_data_is_refused_unless_allowed(straight, corpus, tmp_path, failing, change):
    if change.pop("blend", False):
        change["data_path"] = ["0.3", corpus, "0.7", corpus]
    error = failing(ConfigError, options(corpus, tmp_path / "refused", **resuming(straight, **change)))
    assert "a run must go on with the data it began with" in error and "--allow-data-change" in error
    if "seed" in change:
        allowed = resuming(straight, allow_data_change=True, exit_interval=HALF + 1, **change)
        trained(1, options(corpus, tmp_path, **allowed))
        assert list(curve(tmp_path / "metrics.jsonl")) == [HALF + 1]


@pytest.mark.parametrize(
    "change, told",
    [
        ({"lr": 1e-2}, "max_lr 0.001 there, 0.01 now"),
        ({"weight_decay": 0.5}, "weight decay start 0.01 there, 0.5 now"),
        ({"train_iters": 20}, "decay_samples 120 there, 240 now"),
        ({"global_batch_size": 24}, "decay_samples 120 there, 240 now; global_batch_size 12 there, 24 now"),
    ],
    ids=lambda value: str(value),
)
def test_other_curves_are_refused(straight, corpus, tmp_path, failing, change, told):
    error = failing(ConfigError, options(corpus, tmp_path, **resuming(straight, **change)))
    assert "must follow the curves of" in error and told in error and "--override-opt_param-scheduler" in error


def test_new_curves_where_they_are_asked_for(straight, corpus, tmp_path):
    change = {"lr": 1e-4, "lr_decay_style": "constant", "lr_warmup_iters": 0, "override_opt_param_scheduler": True}
    trained(1, options(corpus, tmp_path, exit_interval=HALF + 1, **resuming(straight, **change)))
    assert curve(tmp_path / "metrics.jsonl")[HALF + 1][2] == 1e-4


def test_curves_of_the_checkpoint_where_they_are_asked_for(straight, corpus, tmp_path):
    """Whatever is given here, a longer run included, the rate goes on as it would have."""
    change = {"lr": 1.0, "lr_warmup_iters": 0, "train_iters": STEPS + 4, "use_checkpoint_opt_param_scheduler": True}
    trained(1, options(corpus, tmp_path, **resuming(straight, **change)))
    rates = [values[2] for values in curve(tmp_path / "metrics.jsonl").values()]
    expected = curve(straight["tensor 2, pipeline 2"] / "metrics.jsonl")
    assert rates == [expected[step][2] for step in range(HALF + 1, STEPS + 1)] + [0.0] * 4


def test_a_constant_rate_has_no_end_to_keep(corpus, tmp_path):
    constant = {"lr_decay_style": "constant", "lr_warmup_iters": 0, "load": tmp_path / "checkpoints"}
    for train_iters in (2, 4):
        trained(1, options(corpus, tmp_path, train_iters=train_iters, save_interval=2, **constant))
    assert list(curve(tmp_path / "metrics.jsonl")) == [1, 2, 3, 4]


def test_the_model_of_the_checkpoint_need_not_be_repeated(straight, corpus, tmp_path):
    """Nor its vocabulary; flags that are given win, and the differences are told."""
    model = ("num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings", "vocab_size")
    left_out = dict.fromkeys([*model, "attention_dropout"])
    fields = resuming(straight, use_checkpoint_args=True, hidden_dropout=0.1, exit_interval=HALF + 1, **left_out)
    done = printed(1, options(corpus, tmp_path, **fields))
    expected = curve(straight["tensor 2, pipeline 2"] / "metrics.jsonl")[HALF + 1]
    assert curve(tmp_path / "metrics.jsonl")[HALF + 1] == pytest.approx(expected, rel=1e-5)
    told = "unlike in the checkpoint, tensor_model_parallel_size: 2 -> 1"
    assert done.out.count(told) == 1 and "num_layers" not in done.out.partition("configuration (")[0]


def test_the_configuration_in_a_checkpoint_can_be_given_again(straight, corpus, tmp_path):
    stored = straight["data 2, sharded optimizer"] / "checkpoints" / f"iter_{HALF:07d}" / "config.yaml"
    new = ["--save", str(tmp_path / "checkpoints"), "--metrics-file", str(tmp_path / "metrics.jsonl")]
    trained(2, ["--config", str(stored), *new, "--exit-interval", "2"])
    expected = curve(straight["data 2, sharded optimizer"] / "metrics.jsonl")
    assert curve(tmp_path / "metrics.jsonl") == {step: expected[step] for step in (1, 2)}


@pytest.mark.parametrize(
    "length, batch, steps",
    [
        ({"train_samples": 96}, 12, [4, 5, 6, 7, 8]),  # 36 samples in 3 steps; 60 are left
        ({"train_samples": 96}, 24, [4, 5]),
        ({"train_samples": 96}, 4, list(range(4, 19))),
        ({"train_iters": 8}, 24, [4, 5, 6, 7, 8]),
        ({"train_iters": 8}, 4, [4, 5, 6, 7, 8]),
    ],
)
def test_another_global_batch_size_leaves_the_length_of_the_run(corpus, tmp_path, length, batch, steps):
    """The same number of samples in all, or of steps, whichever was given; each sample once."""
    numbers = {"train_iters": None, **length, "lr_decay_style": "constant", "lr_warmup_iters": 0, "micro_batch_size": 2}
    numbers["split"] = None  # an epoch holds all samples of each run
    directories = {"save": tmp_path / "checkpoints", "load": tmp_path / "checkpoints", "save_interval": 100}
    trained(1, options(corpus, tmp_path, **numbers, **directories, exit_interval=3))
    override = {"override_opt_param_scheduler": True, "exit_interval": None}
    trained(1, options(corpus, tmp_path, **numbers, **directories, **override, global_batch_size=batch))
    after = [event for event in events(tmp_path / "metrics.jsonl") if event["iteration"] > 3]
    assert [event["iteration"] for event in after] == steps
    assert [event["consumed_samples"] for event in after] == [36 + batch * (number + 1) for number in range(len(steps))]
    assert [event["train_iters"] for event in events(tmp_path / "metrics.jsonl", "start")][-1] == steps[-1]
    assert events(tmp_path / "metrics.jsonl", "exit")[-1]["reason"] == "completed"

"""The same command at several layouts: the same curve, one log."""

import re
from functools import partial

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.e2e.launch import (
    LINE,
    Running,
    curve,
    events,
    flags,
    free_port,
    node,
    printed,
    python,
    run,
    torchrun,
    trained,
)

LAYOUTS = {
    "one process": (1, {}),
    "tensor 2, sequence parallel, one micro-batch": (
        2,
        {"tensor_model_parallel_size": 2, "sequence_parallel": True, "micro_batch_size": 8},
    ),
    "pipeline 2": (2, {"pipeline_model_parallel_size": 2}),
    "data 2, sharded optimizer": (2, {"use_distributed_optimizer": True, "overlap_param_gather": True}),
    "tensor 2, pipeline 2": (4, {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}),
    "pipeline 2 with 2 virtual stages, data 2": (
        4,
        {"pipeline_model_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 1},
    ),
}
COMMANDS = {"one process": python, "tensor 2, pipeline 2": partial(torchrun, 4)}
STEPS = 10
HIDDEN, FFN, LAYERS, VOCABULARY, POSITIONS = 32, 128, 4, 101, 32
NUM_PARAMETERS = (
    (VOCABULARY + POSITIONS) * HIDDEN  # embeddings; the head is tied
    + LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * FFN)  # q, k, v, output; up, down
    + LAYERS * (4 * HIDDEN + FFN + HIDDEN + 4 * HIDDEN)  # their biases; two norms
    + 2 * HIDDEN  # last norm
)


def options(corpus, directory, **fields):
    """A low rate: Adam makes updates of its full size even of gradients that are zero but for rounding."""
    numbers = {"train_iters": STEPS, "lr": 1e-3}
    return flags(data_path=corpus, metrics_file=directory / "metrics.jsonl", **numbers, **fields)


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    """Each layout's console and directory, with metrics and TensorBoard's files in it.

    One process is started without a launcher, one world by torchrun; the others are forked, which takes less time.
    """
    finished = {}
    for name, (num_processes, layout) in LAYOUTS.items():
        directory = tmp_path_factory.mktemp("run")
        events_of_pipelines = directory / "tensorboard" if "pipeline" in name else None
        argv = options(corpus, directory, tensorboard_dir=events_of_pipelines, **layout)
        done = run(COMMANDS[name](argv)) if name in COMMANDS else printed(num_processes, argv)
        assert done.status == 0, done.err
        finished[name] = (done, directory)
    return finished


def assert_same_curve(metrics_file, expected, tolerance=1e-5):
    got = curve(metrics_file)
    assert got.keys() == expected.keys()
    for iteration, values in expected.items():
        assert got[iteration] == pytest.approx(values, rel=tolerance), f"iteration {iteration}"


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_curve_is_that_of_one_process(runs, name):
    expected = curve(runs["one process"][1] / "metrics.jsonl")
    assert expected[STEPS][0] < expected[1][0] - 0.1, "a model that does not learn proves nothing"
    assert_same_curve(runs[name][1] / "metrics.jsonl", expected)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_console_shows_each_iteration_once(runs, name):
    console, directory = runs[name]
    assert list(console.losses) == list(range(1, STEPS + 1))
    exact = {step: values[0] for step, values in curve(directory / "metrics.jsonl").items()}
    assert console.losses == pytest.approx(exact)
    assert [int(line["samples"]) for line in LINE.finditer(console.out)] == list(range(8, 8 * STEPS + 1, 8))
    assert f"number of parameters: {NUM_PARAMETERS:,}\n" in console.out
    assert console.out.count("number of parameters") == 1 and "[rank" not in console.out


@pytest.mark.parametrize("name", ["pipeline 2", "tensor 2, pipeline 2"])
def test_tensorboard_has_the_loss_of_each_iteration(runs, name):
    console, directory = runs[name]
    written = EventAccumulator(str(directory / "tensorboard")).Reload()
    points = {scalar.step: scalar.value for scalar in written.Scalars("lm loss")}
    assert points == pytest.approx(console.losses, rel=1e-6)
    assert [scalar.step for scalar in written.Scalars("lm loss vs samples")] == list(range(8, 8 * STEPS + 1, 8))


def test_the_parts_of_a_step_are_timed_where_that_is_asked_for(corpus, tmp_path):
    """As the least and the most of all ranks, of which the most is drawn."""
    layout = {"pipeline_model_parallel_size": 2, "log_timers_to_tensorboard": True, "log_interval": 5}
    console = printed(2, options(corpus, tmp_path, tensorboard_dir=tmp_path / "tensorboard", **layout))
    written = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    parts = ("batch-generator", "forward-backward", "all-grads-sync", "optimizer")
    for name in parts:
        points = {point.step: point.value for point in written.Scalars(f"{name}-time")}
        assert list(points) == [1, 5, STEPS] and min(points.values()) > 0
    assert console.out.count("(min, max) time across ranks (ms):") == 3
    assert len(re.findall(r"^    forward-backward \.+: \(\d+\.\d+, \d+\.\d+\)$", console.out, re.MULTILINE)) == 3


def test_two_nodes_with_caches_of_their_own(runs, corpus, tmp_path):
    """Two agents, as on two hosts; each builds its indices where the other cannot see them."""
    port, nodes = free_port(), []
    for number in range(2):
        argv = options(corpus, tmp_path / f"node{number}", data_cache_path=tmp_path / f"cache{number}")
        nodes.append(Running(node(number, port, argv)))
    with nodes[0], nodes[1]:
        first, second = nodes[0].finish(), nodes[1].finish()
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert_same_curve(tmp_path / "node0" / "metrics.jsonl", curve(runs["one process"][1] / "metrics.jsonl"))
    assert list(first.losses) == list(range(1, STEPS + 1)) and not second.losses
    assert not (tmp_path / "node1").exists(), "rank 0 alone writes metrics"
    caches = [sorted(path.name for path in (tmp_path / f"cache{number}").rglob("*")) for number in range(2)]
    assert caches[0] == caches[1] != []


def test_the_samples_and_tokens_of_the_lines_add_up(corpus, tmp_path):
    """With lines of several steps each, one for the first step and one for the rest at the end."""
    trained(1, options(corpus, tmp_path, log_interval=3, eod_mask_loss=True))
    lines = events(tmp_path / "metrics.jsonl")
    assert [line["iteration"] for line in lines] == [1, 3, 6, 9, 10]
    assert sum(line["num_samples"] for line in lines) == lines[-1]["consumed_samples"] == 8 * STEPS
    tokens = 8 * STEPS * 32
    assert 0.9 * tokens < sum(line["num_tokens"] for line in lines) < tokens, "ends of documents do not count"

"""A rank that fails ends the whole job within a minute, with the cause as the last thing on the screen."""

import shlex
import signal
import sys
from pathlib import Path

import pytest

from megalite.errors import NumericsError
from tests.e2e.launch import PROGRAM, TORCHRUN, Running, curve, events, flags, free_port, node, run, torchrun, trained


def by_rank(num_processes, argv):
    """The command that trains, with ``{rank}`` in its arguments replaced by each process's rank."""
    command = shlex.join([sys.executable, PROGRAM, *argv]).replace("{rank}", "'$RANK'")
    launch = [*TORCHRUN, "--standalone", "--nproc-per-node", num_processes, "--no-python"]
    return [*launch, "bash", "-c", f"exec {command}"]


def root_cause(done):
    """What torchrun shows last."""
    assert done.status != 0 and done.seconds < 90
    return done.err.partition("Root Cause")[2]


@pytest.mark.parametrize("layout", [{}, {"pipeline_model_parallel_size": 2}], ids=["data 2", "pipeline 2"])
def test_a_killed_rank(corpus, layout):
    with Running(torchrun(2, flags(data_path=corpus, train_iters=5000, exit_signal_handler=True, **layout))) as job:
        job.wait_for("iteration        2/")
        job.send(signal.SIGKILL, rank=1)
        done = job.finish(timeout=60)
    assert "SIGKILL" in root_cause(done) and "rank      : 1 " in root_cause(done)


def test_a_killed_rank_of_another_node(corpus):
    """The node that is left has nobody to tell it: it sees that contact is lost."""
    port, argv = free_port(), flags(data_path=corpus, train_iters=5000, pipeline_model_parallel_size=2)
    with Running(node(0, port, argv)) as first, Running(node(1, port, argv)) as second:
        first.wait_for("iteration        2/")
        second.send(signal.SIGKILL, rank=1)
        done = first.finish(timeout=60), second.finish(timeout=60)
    assert "SIGKILL" in root_cause(done[1])
    assert "Another rank is gone or does not answer: look for its failure first." in root_cause(done[0])


def test_a_restart_after_a_crash_goes_on_from_the_last_checkpoint(corpus, tmp_path):
    checkpoints = tmp_path / "checkpoints"
    files = {"save": checkpoints, "load": checkpoints, "metrics_file": tmp_path / "metrics.jsonl"}
    argv = flags(data_path=corpus, train_iters=60, save_interval=10, **files)
    with Running(torchrun(2, argv, "--max-restarts", "1")) as job:
        job.wait_for("successfully saved checkpoint")
        job.send(signal.SIGKILL, rank=0)
        job.wait_for("loading iteration ")
        done = job.finish()
    assert done.status == 0
    assert "stopped after iteration 60: training is complete" in done.out
    assert max(curve(tmp_path / "metrics.jsonl")) == 60


def test_a_file_that_one_rank_does_not_have(corpus):
    done = run(by_rank(2, flags(data_path=corpus + "{rank}", train_iters=2)))
    cause = root_cause(done)
    assert "corpus_text_document" in cause and "DataError" in cause and "Traceback" not in cause


def test_what_only_rank_0_cannot_do(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    done = run(torchrun(2, flags(data_path=corpus, metrics_file=tmp_path / "file" / "metrics.jsonl")))
    told = "ConfigError: --metrics-file must be writable"
    assert told in root_cause(done) and f"[rank 0] {told}" in done.err
    assert "[rank 1]" not in done.err and "closed by peer" not in done.err, "the other rank only lost contact"


def test_ranks_that_find_different_checkpoints_are_told_which(corpus, tmp_path):
    for rank, train_iters in enumerate((2, 3)):
        save = {"save": tmp_path / f"own{rank}", "save_interval": 10}
        trained(1, flags(data_path=corpus, train_iters=train_iters, **save))
    done = run(by_rank(2, flags(data_path=corpus, load=tmp_path / "own{rank}")))
    cause = root_cause(done)
    assert "must load the same checkpoint" in cause
    assert "iteration 2 in " in cause and "iteration 3 in " in cause
    assert done.err.count("must load the same checkpoint") == 2, "rank 0 says it, torchrun repeats it"


def test_a_loss_that_is_not_finite_ends_the_job_and_spoils_nothing(corpus, tmp_path, failing):
    files = {"save": tmp_path / "checkpoints", "save_interval": 1, "metrics_file": tmp_path / "metrics.jsonl"}
    error = failing(NumericsError, flags(data_path=corpus, lr=1e30, **files))
    assert "loss and gradient norm must be finite; in step 2 the loss was nan" in error
    assert f"The last good checkpoint is that of step 1 in {tmp_path / 'checkpoints'}" in error
    assert [path.name for path in (tmp_path / "checkpoints").glob("iter_*")] == ["iter_0000001"]
    assert events(tmp_path / "metrics.jsonl")[-1]["loss"] == "NaN", "it is shown as it is"


def test_steps_that_are_not_finite_may_be_skipped(corpus, tmp_path):
    """The first step spoils the parameters; all others are skipped and counted, and nothing is written into them."""
    metrics = tmp_path / "metrics.jsonl"
    skip = {"no_check_for_nan_in_loss_and_grad": True, "metrics_file": metrics, "train_iters": 4, "log_interval": 4}
    trained(2, flags(data_path=corpus, lr=1e30, **skip))
    assert [(line["num_nan"], line["num_skipped"]) for line in events(metrics)] == [(0, 0), (3, 3)]


def test_a_bug_shows_where_it_is(corpus, tmp_path):
    """A hook that a user adds and that fails."""
    program = tmp_path / "program.py"
    program.write_text(
        "from megalite.train.hooks.jsonl import JsonLines\n"
        "JsonLines.on_log = lambda self, summary: 1 / 0\n" + Path(PROGRAM).read_text()
    )
    argv = flags(data_path=corpus, metrics_file=tmp_path / "metrics.jsonl")
    done = run([*TORCHRUN, "--standalone", "--nproc-per-node", 2, program, *argv])
    cause = root_cause(done)
    assert "ZeroDivisionError: division by zero" in cause and "program.py" in cause and "rank      : 0 " in cause
    assert "[rank 1]" not in done.err

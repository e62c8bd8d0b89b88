"""``--load`` and its relatives: what is named is loaded or refused, never guessed."""

import re
import shutil

import pytest

from megalite.checkpoint.store import open_store
from megalite.errors import CheckpointError
from tests.e2e.launch import curve, events, flags, printed, trained
from tests.harness import WorkerFailed


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A directory with the checkpoints of iterations 2 and 4, written by two ranks."""
    directory = tmp_path_factory.mktemp("finished") / "checkpoints"
    layout = {"tensor_model_parallel_size": 2}
    trained(2, flags(data_path=corpus, train_iters=4, save=directory, save_interval=2, **layout))
    return directory


@pytest.fixture
def checkpoints(finished, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(finished, tmp_path / "checkpoints")


def options(corpus, directory, **fields):
    return flags(data_path=corpus, metrics_file=directory / "metrics.jsonl", **{"train_iters": 6, **fields})


def contents(directory):
    """Every file of a directory with its bytes and time; the lock, which names its last holder, aside."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def first_iteration(directory):
    return min(curve(directory / "metrics.jsonl"))


@pytest.mark.parametrize("also", [{}, {"finetune": True}, {"save": "elsewhere", "save_interval": 5}], ids=str)
def test_nothing_there_is_an_error(corpus, tmp_path, failing, also):
    fields = {**also, "save": tmp_path / also["save"]} if "save" in also else also
    missing = tmp_path / "none"
    error = failing(CheckpointError, options(corpus, tmp_path, load=missing, **fields))
    assert "--load" in error and str(missing) in error and "does not exist" in error
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_step_that_is_not_there_is_an_error_that_names_those_that_are(corpus, checkpoints, tmp_path, failing):
    error = failing(CheckpointError, options(corpus, tmp_path, load=checkpoints, ckpt_step=3))
    assert "--ckpt-step 3 cannot be loaded" in error and error.endswith("Complete ones: --ckpt-step 2, 4.")


def test_a_missing_shard_is_an_error(corpus, checkpoints, tmp_path, failing):
    shard = next((checkpoints / "iter_0000004").glob("*.safetensors"))
    shard.unlink()
    error = failing(CheckpointError, options(corpus, tmp_path, load=checkpoints, ckpt_step=4))
    assert shard.name in error and "Complete ones: --ckpt-step 2." in error


@pytest.mark.parametrize("spoil", ["incomplete", "garbage", "empty", "gone"])
def test_a_damaged_newest_one_or_tracker_is_told_and_passed_over(corpus, checkpoints, tmp_path, capfd, spoil):
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    if spoil == "incomplete":
        next((checkpoints / "iter_0000004").glob("*.safetensors")).unlink()
    elif spoil == "gone":
        tracker.unlink()
    else:
        tracker.write_text({"garbage": "4x\n", "empty": ""}[spoil])
    trained(1, options(corpus, tmp_path, load=checkpoints))
    assert first_iteration(tmp_path) == (3 if spoil == "incomplete" else 5)
    out = capfd.readouterr().out
    assert "warning: " in out and f"continuing from iteration {2 if spoil == 'incomplete' else 4} instead" in out
    assert f"loading iteration {2 if spoil == 'incomplete' else 4} from {checkpoints}" in out


def test_a_larger_number_than_the_trackers_is_not_loaded(corpus, checkpoints, tmp_path):
    (checkpoints / "iter_0000020").mkdir()
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("2\n")
    trained(1, options(corpus, tmp_path, load=checkpoints))
    assert first_iteration(tmp_path) == 3


def test_a_place_to_save_that_is_none_is_found_before_training(corpus, tmp_path, failing):
    (tmp_path / "file").write_text("")
    error = failing(CheckpointError, options(corpus, tmp_path, save=tmp_path / "file" / "x", save_interval=1))
    assert "--save" in error and str(tmp_path / "file") in error and not (tmp_path / "metrics.jsonl").exists()


def test_finetuning_takes_the_parameters_alone(corpus, checkpoints, tmp_path):
    """From step 0, on other data, at another rate; the first loss is that of the model that was saved."""
    trained(1, options(corpus, tmp_path, load=checkpoints, finetune=True, lr=1e-5, seed=5))
    tuned = curve(tmp_path / "metrics.jsonl")
    assert list(tuned) == [1, 2, 3, 4, 5, 6] and tuned[1][2] == 1e-5
    (tmp_path / "metrics.jsonl").unlink()
    trained(1, options(corpus, tmp_path, seed=5))
    assert tuned[1][0] < curve(tmp_path / "metrics.jsonl")[1][0]


def test_without_optimizer_state(corpus, checkpoints, tmp_path, failing):
    """The parameters and the counters go on, the moments start anew."""
    first, second = tmp_path / "first", tmp_path / "second"
    save = {"save": first / "checkpoints", "save_interval": 10, "no_save_optim": True}
    trained(1, options(corpus, first, load=checkpoints, no_load_optim=True, **save))
    assert first_iteration(first) == 5
    store = open_store(first / "checkpoints" / "iter_0000006")
    assert not [name for name in store.names() if name.startswith("optim.")]
    error = failing(CheckpointError, options(corpus, second, load=first / "checkpoints", train_iters=8))
    assert "must hold optimizer state to resume from" in error and "--no-load-optim" in error
    trained(1, options(corpus, second, load=first / "checkpoints", train_iters=8, no_load_optim=True))
    assert list(curve(second / "metrics.jsonl")) == [7, 8]


def test_another_model_is_refused_by_name(corpus, checkpoints, tmp_path, failing):
    wider = {"hidden_size": 64, "untie_embeddings_and_output_weights": True}
    error = failing(CheckpointError, options(corpus, tmp_path, load=checkpoints, **wider))
    assert "head.weight" in error and "embedding.word.weight" in error and "(101, 32)" in error


def test_differing_names_are_warned_of_where_it_is_told_to(corpus, checkpoints, tmp_path, capfd):
    untied = {"load": checkpoints, "untie_embeddings_and_output_weights": True, "train_iters": 5, "finetune": True}
    trained(1, options(corpus, tmp_path, dist_ckpt_strictness="log_all", **untied))
    assert "missing tensors keep their values:\n  missing (1):\n    head.weight\n" in capfd.readouterr().out
    with pytest.raises(WorkerFailed, match=r"does not fit the model:\n  missing \(1\):\n    head.weight"):
        trained(1, options(corpus, tmp_path, dist_ckpt_strictness="raise_unexpected", **untied))


def test_evaluating_a_checkpoint_needs_neither_rate_nor_length(corpus, checkpoints, tmp_path):
    layout = {"pipeline_model_parallel_size": 2}
    none = dict.fromkeys(("train_iters", "lr"))
    trained(2, options(corpus, tmp_path, load=checkpoints, skip_train=True, eval_iters=2, **none, **layout))
    (evaluated,) = events(tmp_path / "metrics.jsonl", "eval")
    assert evaluated["iteration"] == 4 and evaluated["num_tokens"] == 2 * 8 * 32


def test_running_a_finished_job_again_changes_nothing(corpus, finished, tmp_path, capfd):
    before = contents(finished)
    layout = {"tensor_model_parallel_size": 2, "save": finished, "save_interval": 2, "load": finished}
    trained(2, options(corpus, tmp_path, train_iters=4, **layout))
    assert "training is already complete: 4 of 4 steps are done" in capfd.readouterr().out
    assert contents(finished) == before
    assert [event["reason"] for event in events(tmp_path / "metrics.jsonl", "exit")] == ["completed"]


def test_a_restart_before_the_first_evaluation(corpus, tmp_path):
    """Saved after one step, resumed with pipeline and sharded optimizer, then evaluated as the straight run."""
    fields = {
        "train_iters": 4,
        "eval_interval": 2,
        "eval_iters": 2,
        "pipeline_model_parallel_size": 2,
        "use_distributed_optimizer": True,
        "save_interval": 10,
    }
    trained(4, options(corpus, tmp_path / "straight", save=tmp_path / "a", **fields))
    fields |= {"save": tmp_path / "b", "load": tmp_path / "b"}
    for stop in (1, None):
        trained(4, options(corpus, tmp_path / "again", exit_interval=stop, **fields))
    for kind in ("train", "eval"):
        straight, again = (
            [(event["iteration"], event["loss"]) for event in events(tmp_path / name / "metrics.jsonl", kind)]
            for name in ("straight", "again")
        )
        assert again == straight and len(again) == (4 if kind == "train" else 2)


@pytest.mark.parametrize("finetune", [False, True])
def test_a_change_that_no_tensor_shows_is_told(corpus, checkpoints, tmp_path, finetune):
    """The names and shapes of a model with another activation, or another update, are the same."""
    changed = {"relu": True, "norm_epsilon": 1e-3, "clip_grad": 0.5}
    argv = options(corpus, tmp_path, load=checkpoints, finetune=finetune, **changed)
    console = printed(2, argv)
    told = re.findall("^warning: the run goes on with other settings than those of .*?: (.*)$", console.out, re.M)
    update = "" if finetune else "; clip_grad 1.0 there, 0.5 now"
    assert told == [f"norm_epsilon 1e-05 there, 0.001 now; relu False there, True now{update}"]

"""What a command line takes from the checkpoint that it names."""

import pytest

from megalite.config.cli import parse
from megalite.config.dump import to_yaml
from megalite.errors import CheckpointError
from megalite.train.configure import configure
from tests.checkpoint.states import manager_of, state

MODEL = ["--num-layers", "3", "--hidden-size", "24", "--num-attention-heads", "2", "--seq-length", "16"]
RUN = ["--micro-batch-size", "2", "--lr", "1e-3", "--train-iters", "50", "--lr-decay-style", "cosine"]
ADOPT = ["--use-checkpoint-args", "--use-checkpoint-opt_param-scheduler"]


def adopting(directory, *also):
    return [*ADOPT, "--load", str(directory), *also]


@pytest.fixture
def checkpoint(tmp_path):
    """A --save directory with the checkpoint of a run."""
    manager = manager_of(tmp_path / "run")
    manager.save(1, state(1), {}, to_yaml(parse([*MODEL, *RUN])))
    manager.close()
    return tmp_path / "run"


def test_the_first_start_of_a_job_that_resumes_itself_takes_what_is_given(tmp_path):
    """The same command starts and resumes: there is nothing to take yet, in a directory that need not exist."""
    for directory in (tmp_path / "new", tmp_path):
        save = ["--save", str(directory), "--save-interval", "5"]
        config = configure([*MODEL, *RUN, *adopting(directory, *save)])
        assert (config.model.num_layers, config.optimizer.lr, config.checkpoint.load) == (3, 1e-3, str(directory))


def test_from_then_on_it_takes_what_is_stored(checkpoint):
    """However the directory is written, and with all of the model left out."""
    same = f"{checkpoint.parent}/./run"
    config = configure([*adopting(checkpoint), "--save", same, "--save-interval", "5", "--micro-batch-size", "4"])
    assert (config.model.num_layers, config.model.hidden_size) == (3, 24)
    assert (config.optimizer.lr, config.optimizer.lr_decay_iters, config.training.micro_batch_size) == (1e-3, 50, 4)


def test_what_is_given_wins_over_the_stored_model(checkpoint, caplog):
    with caplog.at_level("INFO", "megalite"):
        config = configure(["--load", str(checkpoint), "--use-checkpoint-args", "--num-layers", "5", *RUN])
    assert (config.model.num_layers, config.model.hidden_size) == (5, 24)
    assert "unlike in the checkpoint, num_layers: 3 -> 5" in caplog.text


@pytest.mark.parametrize("also", [[], ["--save", "elsewhere", "--save-interval", "5"]])
def test_a_missing_checkpoint_of_another_run_is_an_error(tmp_path, also):
    with pytest.raises(CheckpointError, match="must be a directory with checkpoints; it does not exist"):
        configure([*MODEL, *RUN, *adopting(tmp_path / "missing", *also)])


def test_a_damaged_first_checkpoint_is_not_a_first_start(checkpoint):
    (checkpoint / "iter_0000001" / "index.json").unlink()
    with pytest.raises(CheckpointError, match="must contain a complete checkpoint"):
        configure([*MODEL, *RUN, *adopting(checkpoint), "--save", str(checkpoint), "--save-interval", "5"])

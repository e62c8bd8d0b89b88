import errno
import sys

import pytest

from megalite.checkpoint.manager import Saved
from megalite.train import hooks
from megalite.train.exits import ExitReason
from megalite.train.hooks import Hook, HookList, build_hooks
from megalite.train.hooks.jsonl import JsonLines
from megalite.train.hooks.log_line import LogLine
from megalite.train.hooks.tensorboard import TensorBoard
from tests.train.samples import make_eval, make_run, make_step, make_summary

EVENTS = [name for name in vars(Hook) if name.startswith("on_")]

OUTSIDE = """
from megalite.train.hooks import Hook

def build(run):
    return Echo() if run.world_size == 2 else None

class Echo(Hook):
    def on_eval(self, result):
        raise RuntimeError(f"saw {result.name}")
"""


class Recorder(Hook):
    def __init__(self, name, calls):
        for event in (*EVENTS, "close"):
            setattr(self, event, lambda *args, event=event: calls.append((name, event, args)))


def test_every_event_reaches_every_hook_in_order():
    calls = []
    run = make_run()
    arguments = {
        "on_start": (run,),
        "on_step": (make_step(1),),
        "on_log": (make_summary(run, make_step(1)),),
        "on_eval": (make_eval(),),
        "on_save": (Saved(1, 2, 0.5, 0.25),),
        "on_exit": (ExitReason.COMPLETED, 1),
    }
    assert set(arguments) == set(EVENTS)
    with HookList([Recorder("a", calls), Recorder("b", calls)]) as both:
        for event, args in arguments.items():
            getattr(both, event)(*args)
            getattr(Hook(), event)(*args)  # the base does nothing
    expected = [(name, event, args) for event, args in arguments.items() for name in "ab"]
    assert calls == expected + [("a", "close", ()), ("b", "close", ())]


def test_hooks_are_closed_after_a_failure_too():
    calls = []
    with pytest.raises(KeyError), HookList([Recorder("a", calls)]):
        raise KeyError
    assert calls == [("a", "close", ())]


class FullDisk(Recorder):
    """Can write nothing from the first step on."""

    def __init__(self, calls):
        super().__init__("full", calls)
        self.on_step = self.close = self._fail

    def _fail(self, *args):
        raise OSError(errno.ENOSPC, "No space left on device")

    def __str__(self):
        return "--some-file name"


def test_a_hook_that_cannot_write_is_dropped_with_one_warning_and_training_goes_on(caplog):
    calls = []
    with HookList([FullDisk(calls), Recorder("a", calls)]) as both:
        for iteration in (1, 2):
            both.on_step(make_step(iteration))
        both.on_eval(make_eval())
    assert [(name, event) for name, event, _ in calls] == [
        ("a", "on_step"), ("a", "on_step"), ("a", "on_eval"), ("a", "close")
    ]  # fmt: skip
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("--some-file name cannot be written any more and ends here; training goes on: ")
    assert warning.endswith("No space left on device")


def test_the_configuration_decides_which_hooks_there_are(tmp_path):
    def kinds(**logging):
        with build_hooks(make_run(**logging)) as built:
            return [type(hook) for hook in built.hooks]

    assert kinds() == [LogLine]
    everything = kinds(metrics_file=str(tmp_path / "metrics.jsonl"), tensorboard_dir=str(tmp_path))
    assert everything == [JsonLines, LogLine, TensorBoard]


def test_a_new_hook_is_a_new_file(monkeypatch, tmp_path):
    (tmp_path / "echo.py").write_text(OUTSIDE)
    monkeypatch.setattr(hooks, "__path__", [*hooks.__path__, str(tmp_path)])
    try:
        with build_hooks(make_run(world_size=2)) as built, pytest.raises(RuntimeError, match="saw validation"):
            built.on_eval(make_eval())
        with build_hooks(make_run(world_size=1)) as built:
            built.on_eval(make_eval())
    finally:
        sys.modules.pop("megalite.train.hooks.echo", None)

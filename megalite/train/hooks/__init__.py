"""What happens besides training: each file of this directory is one hook, and to add a hook is to add a file.

A hook's file has a function ``build(run: RunInfo) -> Hook | None``, which returns None where the configuration does not
ask for it. Hooks live on rank 0 only, run between steps, and must not communicate.
"""

import contextlib
from typing import Callable, Sequence

from megalite import plugins
from megalite.checkpoint.manager import Saved
from megalite.log import logger
from megalite.train.exits import ExitReason
from megalite.train.metrics import EvalResult, IntervalSummary, RunInfo, StepResult


class Hook:
    """Base of the hooks: a method does nothing until a hook overrides it."""

    def on_start(self, run: RunInfo) -> None:
        """Before the first step of this process."""

    def on_step(self, result: StepResult) -> None:
        """After every step."""

    def on_log(self, summary: IntervalSummary) -> None:
        """After the last step of each log interval, following ``on_step``."""

    def on_eval(self, result: EvalResult) -> None:
        """After each evaluation of one set."""

    def on_save(self, saved: Saved) -> None:
        """When a checkpoint is complete on disk; with --async-save, some steps after the one whose state it holds."""

    def on_exit(self, reason: ExitReason, iteration: int) -> None:
        """When the run stops in an orderly way after ``iteration`` steps."""

    def close(self) -> None:
        """At the very end, also after a failure: release files."""


class HookList(Hook):
    """Several hooks as one, called in order. Leaving its ``with`` block closes them.

    Once training has started, one that cannot write any more, to a full disk say, is dropped with a warning: a run does
    not end for want of its reports.
    """

    def __init__(self, hooks: Sequence[Hook]):
        self.hooks = tuple(hooks)

    def on_start(self, run: RunInfo) -> None:
        for hook in self.hooks:
            hook.on_start(run)

    def on_step(self, result: StepResult) -> None:
        self._call(lambda hook: hook.on_step(result))

    def on_log(self, summary: IntervalSummary) -> None:
        self._call(lambda hook: hook.on_log(summary))

    def on_eval(self, result: EvalResult) -> None:
        self._call(lambda hook: hook.on_eval(result))

    def on_save(self, saved: Saved) -> None:
        self._call(lambda hook: hook.on_save(saved))

    def on_exit(self, reason: ExitReason, iteration: int) -> None:
        self._call(lambda hook: hook.on_exit(reason, iteration))

    def close(self) -> None:
        self._call(lambda hook: hook.close())

    def _call(self, method: Callable[[Hook], None]) -> None:
        for hook in self.hooks:
            try:
                method(hook)
            except OSError as error:
                self.hooks = tuple(other for other in self.hooks if other is not hook)
                logger.warning(f"{hook} cannot be written any more and ends here; training goes on: {error}")
                with contextlib.suppress(OSError):
                    hook.close()

    def __enter__(self) -> "HookList":
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()


def build_hooks(run: RunInfo) -> HookList:
    """The hooks that the configuration asks for, in the order of their files' names. For rank 0; the others use
    ``HookList([])``."""
    modules = [plugins.load(__name__, name, "hook") for name in plugins.available(__name__)]
    built = [module.build(run) for module in modules]
    return HookList([hook for hook in built if hook is not None])

"""Test harness: worlds of forked gloo workers, and the pieces that tests of training share."""

from tests.harness.world import WorkerFailed, run_world

__all__ = ["WorkerFailed", "run_world"]

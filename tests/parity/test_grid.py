"""The promise: the same losses, gradient norms and parameters as one process, at every layout, to 1e-10 in float64."""

import functools

import numpy as np
import pytest
import torch

from megalite.config import Config
from tests.harness import run_world
from tests.parity.cases import covering_cases, five_replicas, uncovered_pairs
from tests.parity.run import Run, train

CASES = covering_cases()


@functools.cache
def reference(config: Config) -> Run:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return train(0, 1, config)
    finally:
        torch.set_num_threads(threads)


def assert_equal_runs(got: Run, expected: Run, tolerance: float) -> None:
    np.testing.assert_allclose(got.losses, expected.losses, rtol=tolerance, atol=0, err_msg="losses")
    np.testing.assert_allclose(got.grad_norms, expected.grad_norms, rtol=tolerance, atol=0, err_msg="gradient norms")
    assert got.params.keys() == expected.params.keys()
    for name, values in expected.params.items():
        np.testing.assert_allclose(got.params[name], values, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", CASES + five_replicas(), ids=str)
def test_layout_equals_one_process(case):
    got = run_world(train, case.world_size, case.config())[0]
    assert_equal_runs(got, reference(case.reference()), tolerance=1e-10)


def test_the_grid_covers_every_pair_of_values():
    assert not uncovered_pairs(CASES)


def test_the_reference_learns_and_the_numbers_matter():
    """A grid in which nothing moved would pass: the loss falls, and dropout, ties and masks each change it."""
    runs = {str(case.options): reference(case.reference()) for case in CASES[:8]}
    assert len({run.losses[0] for run in runs.values()}) > 4
    for run in runs.values():
        assert run.losses[-1] != run.losses[0] and max(run.grad_norms) > 0

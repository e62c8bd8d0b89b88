import os
import signal

import pytest
import torch

from megalite.config import TrainingConfig
from megalite.parallel.collectives import all_reduce
from megalite.parallel.context import ParallelContext
from megalite.topology.mesh import Mesh
from megalite.train.exits import EXIT_SIGNALS, SAVE_SIGNAL, ExitPolicy, ExitReason
from tests.harness import run_world


def test_a_run_without_limits_goes_on_to_its_end():
    policy = ExitPolicy(TrainingConfig(), train_iters=5)
    assert [policy.requested(iteration) for iteration in range(1, 5)] == [ExitReason.NONE] * 4
    assert policy.requested(5) is ExitReason.COMPLETED


def test_exit_interval_counts_steps_of_the_run():
    policy = ExitPolicy(TrainingConfig(exit_interval=3), train_iters=10)
    assert [i for i in range(1, 10) if policy.requested(i) is ExitReason.INTERVAL] == [3, 6, 9]


def test_exit_duration_counts_from_the_construction():
    now = 1000.0
    policy = ExitPolicy(TrainingConfig(exit_duration_in_mins=2), train_iters=10, clock=lambda: now)
    assert policy.requested(1) is ExitReason.NONE
    now = 1119.9
    assert policy.requested(2) is ExitReason.NONE
    now = 1120.0
    assert policy.requested(3) is ExitReason.DURATION


def test_exit_duration_may_count_from_an_earlier_start():
    minutes = TrainingConfig(exit_duration_in_mins=2)
    reasons = [
        ExitPolicy(minutes, train_iters=10, clock=lambda: 1000.0, started=started).requested(1)
        for started in (880.1, 880.0)
    ]
    assert reasons == [ExitReason.NONE, ExitReason.DURATION]


def test_reasons_have_an_order_and_words():
    policy = ExitPolicy(TrainingConfig(exit_interval=5, exit_duration_in_mins=0), train_iters=10)
    assert policy.requested(5) is ExitReason.DURATION
    assert policy.requested(10) is ExitReason.COMPLETED
    assert len({reason.text for reason in ExitReason}) == len(ExitReason)


@pytest.mark.parametrize("number", sorted(EXIT_SIGNALS))
def test_a_signal_is_noted_and_the_former_handler_comes_back(number):
    received = []
    former = signal.signal(number, lambda *args: received.append(number))
    try:
        with ExitPolicy(TrainingConfig(exit_signal_handler=True), train_iters=10) as policy:
            assert policy.requested(1) is ExitReason.NONE
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert policy.requested(2) is policy.requested(3) is ExitReason.SIGNAL
            assert policy.requested(10) is ExitReason.COMPLETED
        assert not received
        os.kill(os.getpid(), number)
        assert received == [number]
    finally:
        signal.signal(number, former)


def test_sigusr1_asks_for_a_save_and_not_for_the_end():
    former = signal.getsignal(SAVE_SIGNAL)
    with ExitPolicy(TrainingConfig(), train_iters=10, saving=True) as policy:
        assert not policy.save_requested
        os.kill(os.getpid(), SAVE_SIGNAL)
        os.kill(os.getpid(), SAVE_SIGNAL)
        assert policy.save_requested and policy.requested(2) is ExitReason.NONE and not policy.signalled
        policy.save_granted()
        assert not policy.save_requested
    assert signal.getsignal(SAVE_SIGNAL) is former


def test_signals_are_left_alone_unless_asked_for():
    numbers = [*EXIT_SIGNALS, SAVE_SIGNAL]
    before = [signal.getsignal(number) for number in numbers]
    with ExitPolicy(TrainingConfig(), train_iters=10):
        assert [signal.getsignal(number) for number in numbers] == before


def _stop_of_each_rank(rank, world_size):
    world = ParallelContext(Mesh(dp=world_size), rank, torch.device("cpu")).world
    with ExitPolicy(TrainingConfig(exit_signal_handler=True), train_iters=10) as policy:
        for iteration in range(1, 11):
            if rank == 1 and iteration == 4:
                os.kill(os.getpid(), signal.SIGTERM)
            wish = torch.tensor([int(policy.requested(iteration))])
            reason = ExitReason(int(all_reduce(wish, world, "max")))
            if reason:
                return iteration, reason


def test_all_ranks_stop_after_the_same_step_when_one_is_signalled():
    assert run_world(_stop_of_each_rank, 3) == [(4, ExitReason.SIGNAL)] * 3

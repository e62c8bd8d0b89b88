import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.errors import ConfigError
from megalite.topology.microbatches import BatchSchedule, BatchSize


@st.composite
def schedules(draw):
    """Valid schedules, half of them ramped up."""
    micro, dp = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    start, increment, steps = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    rampup = draw(
        st.none() | st.tuples(st.just(start * micro * dp), st.just(increment * micro * dp), st.integers(1, 900))
    )
    return BatchSchedule((start + increment * steps) * micro * dp, micro, dp, rampup)


def test_constant_batch():
    schedule = BatchSchedule(12, 2, 3)
    assert schedule.at(0) == schedule.at(10**15) == BatchSize(global_batch_size=12, num_microbatches=2)


def test_rampup_by_hand():
    """16 -> 32 in 2 steps of 8 over 100 samples: 16 up to 49 samples, 24 up to 99, then 32."""
    schedule = BatchSchedule(32, 4, 2, (16, 8, 100))
    at = [schedule.at(consumed) for consumed in (0, 49, 50, 99, 100, 101)]
    assert at == [(16, 2), (16, 2), (24, 3), (24, 3), (32, 4), (32, 4)]
    # Four batches of 16 pass 50 samples, two of 24 pass 100.
    assert [schedule.samples_at_iteration(iteration) for iteration in range(9)] == [
        0,
        16,
        32,
        48,
        64,
        88,
        112,
        144,
        176,
    ]
    assert [schedule.iterations_for_samples(samples) for samples in (0, 15, 16, 63, 64, 87, 88, 112, 143, 144)] == [
        0,
        0,
        1,
        3,
        4,
        4,
        5,
        6,
        6,
        7,
    ]


def test_rampup_jumps_over_sizes_when_a_batch_is_longer_than_a_step():
    schedule = BatchSchedule(8, 1, 1, (2, 1, 6))
    assert [schedule.at(consumed).global_batch_size for consumed in (0, 2, 6)] == [2, 4, 8]
    assert schedule.samples_at_iteration(3) == 14


@given(schedules(), st.integers(0, 1200))
@settings(deadline=None)
def test_batch_grows_by_megatron_s_rule(schedule, consumed):
    expected = schedule.global_batch_size
    if schedule.rampup is not None:
        start, increment, samples = schedule.rampup
        steps = (schedule.global_batch_size - start) // increment
        if consumed <= samples:
            expected = start + consumed * steps // samples * increment
    batch = schedule.at(consumed)
    assert batch.global_batch_size == expected
    assert batch.num_microbatches * schedule.micro_batch_size * schedule.data_parallel_size == expected


@given(schedules(), st.integers(0, 60))
@settings(deadline=None)
def test_samples_at_iteration_adds_up_the_batches(schedule, iteration):
    consumed = 0
    for _ in range(iteration):
        consumed += schedule.at(consumed).global_batch_size
    assert schedule.samples_at_iteration(iteration) == consumed


@given(schedules(), st.integers(0, 3000))
@settings(deadline=None)
def test_iterations_are_those_whose_batches_fit(schedule, train_samples):
    iterations = schedule.iterations_for_samples(train_samples)
    assert schedule.samples_at_iteration(iterations) <= train_samples < schedule.samples_at_iteration(iterations + 1)


def test_an_incomplete_last_batch_is_not_trained_on():
    assert BatchSchedule(32, 4, 2).iterations_for_samples(100) == 3


def test_large_numbers_are_exact():
    schedule = BatchSchedule(1536, 1, 8, (32, 32, 5_859_375))
    iterations = schedule.iterations_for_samples(10**12)
    assert 0 <= 10**12 - schedule.samples_at_iteration(iterations) < 1536


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            (10, 2, 3),
            r"global_batch_size \(10\) .* micro_batch_size \(2\) x data_parallel_size \(3\) = 6: use .* of 6 or 12\.$",
        ),
        (
            (4, 8, 1),
            r"\(4\) .* \(8\) x data_parallel_size \(1\) = 8: use a global batch of 8, or a micro-batch size of 4",
        ),
        ((12, 4, 2), r"= 8: use a global batch of 8 or 16, or a micro-batch size of 3"),
        ((4, 0, 1), "micro_batch_size must be at least 1; given 0"),
        ((0, 1, 1), "global_batch_size must be at least 1; given 0"),
        ((4, 1, -1), "data_parallel_size must be at least 1; given -1"),
        (
            (32, 2, 2, (8, 5, 100)),
            "24 samples of growth are not a multiple of 5; given --rampup-batch-size 8 5 100 and global_.* 32: use",
        ),
        (
            (32, 2, 2, (8, 6, 100)),
            r"must be a multiple of micro_batch_size \(2\) x .* = 4; the batch of 14 samples is not",
        ),
        ((32, 2, 2, (2, 6, 100)), "the batch of 2 samples is not; given --rampup-batch-size 2 6 100"),
        ((32, 2, 2, (32, 4, 100)), "must start below the global batch size; given --rampup-batch-size 32 4 100"),
        (
            (32, 2, 2, (8, 4, 0)),
            "start, increment and samples of a batch ramp-up must be at least 1; given --rampup-batch-size 8 4 0",
        ),
        ((4, 2, 2, (2, 2, 9)), "leave it out, for no smaller batch divides"),
    ],
)
def test_batches_that_do_not_divide_are_refused_with_the_numbers(arguments, message):
    with pytest.raises(ConfigError, match=message):
        BatchSchedule(*arguments)


@given(
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(1, 8),
    st.tuples(st.integers(1, 80), st.integers(1, 20), st.just(50)),
)
@settings(deadline=None)
def test_what_the_error_suggests_works(global_batch, micro, dp, rampup):
    try:
        BatchSchedule(global_batch, micro, dp, rampup)
    except ConfigError as error:
        text = str(error)
        if "use for example" in text:
            suggested = text.split("--rampup-batch-size")[-1].rstrip(".").split()
            BatchSchedule(global_batch, micro, dp, tuple(map(int, suggested)))
        elif "use a global batch of" in text:
            batches, _, fitting = (
                text.split("use a global batch of ")[1].rstrip(".").partition(", or a micro-batch size of ")
            )
            for batch in batches.split(" or "):
                BatchSchedule(int(batch), micro, dp)
            if fitting:
                BatchSchedule(global_batch, int(fitting), dp)
        else:
            assert "leave it out" in text, "no error is without a way out"


@given(schedules(), st.integers(0, 40), st.integers(0, 200), st.integers(0, 2000))
def test_a_run_that_goes_on_has_the_batches_that_are_left(schedule, iterations, consumed, more):
    """From any number of samples on, which batches of another size may have consumed."""
    reached = consumed
    for _ in range(iterations):
        reached += schedule.at(reached).global_batch_size
    assert schedule.samples_at_iteration(iterations, consumed) == reached
    fitting = schedule.iterations_for_samples(consumed + more, consumed)
    last = schedule.samples_at_iteration(fitting, consumed)
    assert last <= consumed + more < last + schedule.at(last).global_batch_size

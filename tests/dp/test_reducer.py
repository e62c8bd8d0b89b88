"""When reductions start: as early as the gradients allow, and in one order."""

import weakref

import pytest
import torch
from torch import nn

from megalite.dp.buckets import BucketKey, make_bucket
from megalite.dp.reducer import GradientReducer
from megalite.nn.wgrad import accumulate, attach
from megalite.parallel.collectives import Done
from tests.dp.toy import make_param, spec_of

WORD, UP, HEAD = "embedding.word.weight", "layers.0.mlp.up.weight", "head.weight"
KEY = BucketKey(torch.float64, reduce_axes=(), decay=True, sharded=False, tie_copy=False, tie=None)


class World:
    """Three buckets of one parameter each, in backward order, and a log of the reductions that started."""

    def __init__(self, overlap=True, uses=None):
        self.params = {name: make_param(spec_of(name)) for name in (HEAD, UP, WORD)}
        buckets = [make_bucket(KEY, [param], 1) for param in self.params.values()]
        self.started = []
        self.reducer = GradientReducer(buckets, self.start, overlap, uses or {})

    def start(self, bucket):
        self.started.append(bucket.entries[0].param.spec.name)
        return Done()

    def arrive(self, name):
        accumulate(self.params[name], lambda main: main.add_(1.0))


def test_a_bucket_starts_when_its_last_micro_batch_has_come():
    world = World()
    world.reducer.begin_step(num_microbatches=2)
    for name in (HEAD, UP, WORD):
        world.arrive(name)
    assert world.started == []
    world.arrive(HEAD)
    assert world.started == [HEAD]
    world.arrive(UP)
    assert world.started == [HEAD, UP]


def test_a_complete_bucket_waits_for_those_before_it():
    world = World()
    world.reducer.begin_step(1)
    world.arrive(WORD)
    world.arrive(UP)
    assert world.started == []
    world.arrive(HEAD)
    assert world.started == [HEAD, UP, WORD]


def test_a_parameter_used_twice_is_complete_after_its_second_use():
    world = World(uses={HEAD: 2})
    world.reducer.begin_step(1)
    world.arrive(HEAD)
    assert world.started == []
    world.arrive(HEAD)
    assert world.started == [HEAD]


def test_finish_starts_what_is_left_even_where_no_gradient_came():
    world = World()
    world.reducer.begin_step(1)
    world.arrive(UP)
    world.reducer.finish()
    assert world.started == [HEAD, UP, WORD]


def test_what_a_handle_holds_is_free_after_the_reduction():
    class Handle:
        waited = 0

        def wait(self):
            Handle.waited += 1

    world, alive = World(), []

    def start(bucket):
        handle = Handle()
        alive.append(weakref.ref(handle))
        return handle

    reducer = GradientReducer(world.reducer._buckets, start, True, {})
    reducer.begin_step(1)
    world.arrive(HEAD)
    reducer.finish()
    assert Handle.waited == len(alive) == 3 and not any(reference() for reference in alive)


def test_without_overlap_everything_starts_in_finish():
    world = World(overlap=False)
    world.reducer.begin_step(1)
    for name in (HEAD, UP, WORD):
        world.arrive(name)
    assert world.started == []
    world.reducer.finish()
    assert world.started == [HEAD, UP, WORD]


def test_each_step_starts_from_zero():
    world = World()
    for _ in range(2):
        world.reducer.begin_step(1)
        assert all((param.main_grad == 0).all() for param in world.params.values())
        for name in (HEAD, UP, WORD):
            world.arrive(name)
        world.reducer.finish()
    assert world.started == [HEAD, UP, WORD] * 2
    assert (world.params[UP].main_grad == 1).all()


@pytest.mark.parametrize("overlap", [True, False])
def test_a_gradient_after_the_last_is_an_error(overlap):
    world = World(overlap)
    world.reducer.begin_step(1)
    world.arrive(HEAD)
    with pytest.raises(AssertionError, match="head.weight: more gradients arrived"):
        world.arrive(HEAD)


def test_gradients_of_plain_autograd_arrive_too():
    param = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    param.spec = spec_of(HEAD)
    attach(param)
    started = []
    bucket = make_bucket(KEY._replace(dtype=torch.bfloat16), [param], 1)
    reducer = GradientReducer([bucket], lambda bucket: started.append(bucket) or Done(), True, {})
    reducer.begin_step(2)
    for scale in (256.0, 1.0):
        (param * scale).sum().backward()
    assert started == [bucket] and param.main_grad.tolist() == [257.0] * 3 and param.grad is None

import re

import pytest
import torch

from megalite.errors import DataError
from megalite.nn.context import LayerContext
from megalite.nn.embedding import PositionEmbedding, VocabParallelEmbedding
from megalite.nn.vocabulary import VocabularyShard
from megalite.parallel.collectives import all_reduce
from tests.harness import run_world
from tests.nn.world import assert_same, every_case, fill, layer_context, own, random, sequence_part

SEQUENCE, BATCH, WIDTH = 8, 3, 6


def make(ctx, vocab_size, padded_size):
    return VocabParallelEmbedding("word", WIDTH, 0.5, VocabularyShard.of(vocab_size, padded_size, ctx.tp), ctx)


def check_words(rank, world_size, sequence_parallel, vocabulary):
    vocab_size, padded_size = vocabulary
    ctx = layer_context(rank, world_size, sequence_parallel)
    embedding = make(ctx, vocab_size, padded_size)
    real = embedding.shard.num_real
    whole = random(vocab_size, WIDTH, seed=1)
    embedding.weight.data[:real] = own(whole, embedding.weight)
    whole.requires_grad_()
    ids = torch.randint(0, vocab_size, (BATCH, SEQUENCE), generator=torch.Generator().manual_seed(2))
    ids[0, 0], ids[0, 1] = 0, vocab_size - 1
    coefficients = random(SEQUENCE, BATCH, WIDTH, seed=3)
    expected = whole[ids.t()]
    (expected * coefficients).sum().backward()
    embedded = embedding(ids)
    assert_same(embedded, sequence_part(expected, ctx))
    (embedded * sequence_part(coefficients, ctx)).sum().backward()
    assert_same(embedding.weight.grad[:real], own(whole.grad, embedding.weight))
    assert not embedding.weight.grad[real:].any()


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_lookup_and_gradient_equal_dense(tp):
    run_world(every_case, tp, check_words, [False, True], [(101, 104), (101, 512), (128, 128)])


def initial_rows(rank, world_size, padded_size):
    embedding = make(layer_context(rank, world_size), 101, padded_size)
    weight, real = embedding.weight.detach(), embedding.shard.num_real
    assert not weight[real:].any() and weight[:real].all()
    return weight[:real]


def test_initial_words_do_not_depend_on_tensor_parallelism_or_padding():
    (whole,) = run_world(initial_rows, 1, 101)
    assert whole.shape == (101, WIDTH)
    for tp, padded_size in ((1, 128), (2, 104), (4, 128), (4, 512)):
        assert torch.equal(torch.cat(run_world(initial_rows, tp, padded_size)), whole)


@pytest.mark.parametrize("wrong", [-1, 101, 127, 50257])
def test_ids_outside_the_vocabulary_are_refused_even_where_there_is_padding(wrong):
    embedding = make(LayerContext(), 101, 128)
    with pytest.raises(DataError, match=re.escape(f"token ids must be in [0, 101), the vocabulary; given {wrong}")):
        embedding(torch.tensor([[1, wrong, 2]]))


def check_positions(rank, world_size, sequence_parallel):
    ctx = layer_context(rank, world_size, sequence_parallel)
    embedding = PositionEmbedding("position", 16, WIDTH, 0.5, ctx)
    whole = fill(embedding.weight, 1)
    ids = torch.arange(SEQUENCE).repeat(BATCH, 1)
    ids[1, 3:] -= 3
    coefficients = random(SEQUENCE, BATCH, WIDTH, seed=3)
    expected = whole[ids.t()]
    (expected * coefficients).sum().backward()
    embedded = embedding(ids)
    assert_same(embedded, sequence_part(expected, ctx))
    (embedded * sequence_part(coefficients, ctx)).sum().backward()
    grad = embedding.weight.grad
    assert_same(all_reduce(grad, ctx.tp) if embedding.weight.spec.reduce_axes else grad, whole.grad)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_positions_equal_dense(tp):
    run_world(every_case, tp, check_positions, [False, True])

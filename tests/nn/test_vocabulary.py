import torch
from hypothesis import given, settings, strategies as st

from megalite.nn.vocabulary import VocabularyShard
from megalite.parallel.group import Group


class _Place:
    """Just the arithmetic part of a group."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 130), st.integers(1, 8))
def test_shards_partition_the_vocabulary(vocab_size, multiple, tp):
    padded = -(-vocab_size // (multiple * tp)) * multiple * tp
    shards = [VocabularyShard.of(vocab_size, padded, _Place(rank, tp)) for rank in range(tp)]
    held = [shard.start + row for shard in shards for row in range(shard.num_real)]
    assert held == list(range(vocab_size))
    ids = torch.arange(vocab_size)
    for shard in shards:
        rows, elsewhere = shard.local(ids)
        here = [i for i in range(vocab_size) if shard.start <= i < shard.start + shard.num_rows]
        assert torch.equal((~elsewhere).nonzero().flatten(), torch.tensor(here, dtype=torch.int64))
        assert rows[~elsewhere].tolist() == [i - shard.start for i in here] and not rows[elsewhere].any()


def test_every_id_of_the_vocabulary_is_accepted():
    VocabularyShard.of(5, 8, Group.single("tp")).check(torch.arange(5), "ids")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.preprocess.dedup import Deduplicator, SeenDigests
from megalite.data.preprocess.encode import Column, EncodedChunk

NONE = np.zeros(0, np.uint64)


@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=20), st.integers(0, 3))
def test_the_first_of_each_number_is_found_in_any_division(batches, num_known):
    known = [number for batch in batches[:num_known] for number in batch]
    seen, expected = SeenDigests(np.array(sorted(set(known)), np.uint64)), set(known)
    for batch in batches[num_known:]:
        first = seen.first_seen(np.array(batch, np.uint64)).tolist()
        assert first == [number not in expected and number not in batch[:place] for place, number in enumerate(batch)]
        expected |= set(batch)


def test_many_numbers_are_few_arrays():
    seen = SeenDigests(NONE)
    for number in range(1000):
        assert seen.first_seen(np.array([number], np.uint64)).all()
    assert len(seen._levels) <= 10, "so that a look-up takes logarithmic time"
    assert not seen.first_seen(np.arange(1000, dtype=np.uint64)).any()


def chunk(*digests: int) -> EncodedChunk:
    ones = np.ones(len(digests), np.int32)
    column = Column(np.array(digests, np.uint16), ones, ones, ones.astype(np.int64))
    return EncodedChunk([column], 0, 0, 0, digests=np.array(digests, np.uint64))


def test_what_is_known_lasts_in_the_file(tmp_path):
    path = str(tmp_path / "digests")
    first = Deduplicator(path, 0)
    chunks = [chunk(5, 6, 5), chunk(6, 7)]
    assert [first.filter(one) for one in chunks] == [1, 1]
    assert [one.columns[0].tokens.tolist() for one in chunks] == [[5, 6], [7]]
    assert first.sync() == 3
    first.filter(chunk(8))
    first.close(keep=True)
    second = Deduplicator(path, 3)
    assert second.filter(chunk(5, 7, 8)) == 2, "8 came after the last sync, and will come again"
    second.close(keep=False)
    assert not list(tmp_path.iterdir())

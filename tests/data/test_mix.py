"""Streams whose mix of corpora changes on the way."""

import json
import logging
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.data.build import Wanted, build_datasets
from megalite.data.stream import History
from tests.data.corpora import request, write_corpus

LENGTH = 4


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """a, b, c: 100 samples each whose first tokens tell corpus and sample apart: 1000 a and 4 k, and so on."""
    directory = tmp_path_factory.mktemp("corpora")
    found = {}
    for number, name in enumerate("abc"):
        tokens = [10_000 * number + token for token in range(100 * LENGTH + 1)]
        found[name] = write_corpus(directory / name, [tokens])
    return found


def stream(corpora, mix, num_samples, history=None, **fields):
    """Of a mix like ``{"a": 1, "b": 3}``, or ``"ab"`` without weights."""
    path = [corpora[name] for name in mix]
    if isinstance(mix, dict):
        path = [item for name, weight in mix.items() for item in (str(weight), corpora[name])]
    asked = request(LENGTH, **{"data_path": tuple(path), "split": "1", **fields})
    return build_datasets(asked, Wanted(num_samples), history).train


def read(data, begin, end):
    """(corpus, sample of it) of each sample of the stream."""
    first = [int(data[number]["tokens"][0]) for number in range(begin, end)]
    return [("abc"[token // 10_000], token % 10_000 // LENGTH) for token in first]


def stopped(data, consumed):
    """What a run that goes on from a checkpoint after ``consumed`` samples finds in it."""
    meta = {"data_fingerprint": data.fingerprint, "data_stream": data.to_meta(consumed), "consumed_samples": consumed}
    return History.from_meta(json.loads(json.dumps(meta)))


MIXES = [{"a": 1}, {"a": 1, "b": 3}, "ab", {"a": 1, "b": 2, "c": 0.5}]


@pytest.mark.parametrize("mix", MIXES, ids=str)
@pytest.mark.parametrize("num_samples", [60, 150, 450])
def test_the_same_mix_goes_on_as_if_nothing_had_been(corpora, mix, num_samples):
    straight = stream(corpora, mix, num_samples)
    resumed = stream(corpora, mix, num_samples, stopped(straight, 40))
    assert resumed.fingerprint == straight.fingerprint and resumed.start == 0
    assert read(resumed, 0, num_samples) == read(straight, 0, num_samples)


def test_counts_are_those_of_the_samples(corpora):
    data = stream(corpora, {"a": 1, "b": 3}, 100)
    for consumed in (0, 7, 40, 41, 20, 100):  # not only upwards
        seen = Counter(name for name, _ in read(data, 0, consumed))
        assert data.consumed(consumed) == [seen["a"], seen["b"]]


def test_each_corpus_goes_on_from_its_own_count(corpora, caplog):
    caplog.set_level(logging.INFO, "megalite")
    before = stream(corpora, {"a": 1, "b": 3}, 80)
    after = stream(corpora, {"a": 3, "c": 1}, 80, stopped(before, 40))
    assert after.fingerprint != before.fingerprint and len(after) >= 80
    old, new = read(before, 0, 40), read(after, 40, 80)
    assert Counter(name for name, _ in new) == {"a": 30, "c": 10}
    # what a would have given next in the old mix: its samples go on in the order they were in
    alone = [sample for name, sample in read(before, 0, 80) if name == "a"]
    assert [sample for name, sample in new if name == "a"][: len(alone) - 10] == alone[10:]
    of_a = [sample for name, sample in old + new if name == "a"]
    assert len(set(of_a)) == len(of_a) == 40
    assert "the mix of corpora changes after 40 samples" in caplog.text
    assert f"{corpora['a']} goes on after 10" in caplog.text and f"{corpora['c']} begins" in caplog.text
    with pytest.raises(IndexError, match="begins with sample 40; asked for number 39"):
        after[39]


def test_a_stream_after_a_change_is_resumed_like_any_other(corpora):
    before = stream(corpora, {"a": 1, "b": 3}, 300)
    after = stream(corpora, {"a": 3, "c": 1}, 300, stopped(before, 40))
    resumed = stream(corpora, {"a": 3, "c": 1}, 300, stopped(after, 170))
    assert (resumed.fingerprint, resumed.start) == (after.fingerprint, 40)
    assert read(resumed, 40, 300) == read(after, 40, 300)
    assert resumed.consumed(170) == after.consumed(170)


def test_a_corpus_that_was_left_out_for_a_while_goes_on_where_it_was_left(corpora):
    first = stream(corpora, {"a": 1, "b": 1}, 100)
    second = stream(corpora, {"a": 1}, 100, stopped(first, 20))
    second = stream(corpora, {"a": 1}, 100, stopped(second, 30))
    third = stream(corpora, {"a": 1, "b": 1}, 100, stopped(second, 40))
    assert third.consumed(40) == [30, 10]
    seen = [s for name, s in read(first, 0, 20) + read(third, 40, 100) if name == "b"]
    assert len(set(seen)) == len(seen) == 40


def test_a_corpus_is_read_to_the_end_of_its_order_before_it_is_shuffled_anew(corpora):
    """100 samples of a in the first order, then another order of them."""
    before = stream(corpora, {"a": 1}, 50)
    after = stream(corpora, {"a": 1, "b": 1}, 350, stopped(before, 50))
    of_a = [sample for name, sample in read(before, 0, 50) + read(after, 50, 350) if name == "a"]
    assert len(of_a) == 200 and sorted(of_a[:100]) == list(range(100)) == sorted(of_a[100:])
    assert of_a[:100] != of_a[100:]


def test_a_longer_run_of_the_same_mix_is_another_stream_once_it_takes_another_order(corpora):
    before = stream(corpora, {"a": 1}, 90)
    assert stream(corpora, {"a": 1}, 100, stopped(before, 50)).fingerprint == before.fingerprint
    longer = stream(corpora, {"a": 1}, 101, stopped(before, 50))
    assert longer.fingerprint != before.fingerprint and longer.start == 50
    assert sorted(sample for _, sample in read(before, 0, 50) + read(longer, 50, 100)) == list(range(100))


def test_samples_cut_or_shuffled_otherwise_begin_anew(corpora):
    before = stream(corpora, {"a": 1}, 50)
    asked = request(LENGTH, 2, data_path=(corpora["a"],), split="1")
    after = build_datasets(asked, Wanted(50), stopped(before, 20)).train
    assert after.start == 20 and after.consumed(20) == [0]


def test_samples_with_another_mask_go_on(corpora):
    before = stream(corpora, {"a": 1}, 50)
    after = stream(corpora, {"a": 1}, 50, stopped(before, 20), eod_mask_loss=True)
    assert after.start == 20 and after.consumed(20) == [20]
    assert read(after, 20, 50) == read(before, 20, 50)


def test_a_corpus_given_twice_is_counted_twice(corpora):
    path = ("1", corpora["a"], "3", corpora["a"])
    before = build_datasets(request(LENGTH, data_path=path, split="1"), Wanted(60)).train
    again = build_datasets(request(LENGTH, data_path=path, split="1"), Wanted(60), stopped(before, 40)).train
    assert again.fingerprint == before.fingerprint and again.consumed(40) == [10, 30]
    changed = build_datasets(request(LENGTH, data_path=path[1::2], split="1"), Wanted(60), stopped(before, 40)).train
    assert changed.consumed(40) == [10, 30]


def test_a_moved_corpus_is_the_same(corpora, tmp_path):
    before = stream(corpora, {"a": 1}, 60)
    moved = write_corpus(tmp_path / "moved", [list(range(100 * LENGTH + 1))])
    resumed = stream({"a": moved}, {"a": 1}, 60, stopped(before, 40))
    assert resumed.fingerprint == before.fingerprint


def test_a_checkpoint_without_an_account_has_no_history():
    assert History.from_meta({"consumed_samples": 5, "data_fingerprint": "x"}) is None


def test_counts_beyond_32_bits(corpora):
    """Of a corpus that was read for 2^31 samples and more, without reading them."""
    before = stream(corpora, {"a": 1}, 2**33)
    consumed = 2**33 - 100
    assert before.consumed(consumed) == [consumed] and len(before) >= 2**33
    changed = stream(corpora, {"a": 1, "b": 1}, 2**33, stopped(before, consumed))
    assert changed.start == consumed and changed.consumed(consumed) == [consumed, 0]
    assert changed.samples.datasets[0].skip == consumed


weights = st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), min_size=1)


@settings(max_examples=25, deadline=None)
@given(st.lists(weights, min_size=2, max_size=4), st.lists(st.integers(0, 40), min_size=3, max_size=3))
def test_no_sample_comes_twice_before_all_have_come_once(corpora, mixes, steps):
    """Whatever the mixes, of a corpus that none of them leaves out."""
    total, consumed, history, seen = 200, 0, None, []
    for mix, step in zip(mixes, [*steps, total]):
        data = stream(corpora, {"a": 1, **mix}, total, history)
        end = min(total, consumed + step)
        seen += read(data, consumed, end)
        history, consumed = stopped(data, end), end
    of_a = [sample for name, sample in seen if name == "a"]
    for first in range(0, len(of_a), 100):
        block = of_a[first : first + 100]
        # orders of one mix may shuffle two epochs together: a sample comes at most as often as there are epochs
        assert max(Counter(block).values(), default=0) <= 2
    assert data.consumed(consumed)[list({"a": 1, **mix}).index("a")] == len(of_a)


def test_the_corpora_are_what_the_tests_take_them_for(corpora):
    assert sorted(read(stream(corpora, {"a": 1}, 100), 0, 100)) == [("a", k) for k in range(100)]

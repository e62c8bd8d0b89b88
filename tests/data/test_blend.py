import numpy as np
import pytest

from megalite.data.blend import Blend, BlendedDataset, normalized, parse_data_path, samples_due
from megalite.data.cache import IndexCache
from megalite.errors import ConfigError, DataError
from tests.data.corpora import VECTORS


class Numbers:
    """A data set whose sample k is (name, k)."""

    def __init__(self, name, length=100):
        self.fingerprint = self.name = name
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"tokens": np.array([self.name, index])}

    def padding(self):
        return {"tokens": np.array([self.name, -1])}

    def preparations(self):
        return []


@pytest.mark.parametrize(
    "items, blend",
    [
        (["a"], Blend(("a",), None)),
        (["a", "b"], Blend(("a", "b"), None)),
        (["a", "b", "c"], Blend(("a", "b", "c"), None)),
        (["0.3", "a", "0.7", "b"], Blend(("a", "b"), (0.3, 0.7))),
        (["1", "a"], Blend(("a",), (1.0,))),
        (["1e-1", "a", "2", "3"], Blend(("a", "3"), (0.1, 2.0))),
        (["1", "2", "3"], Blend(("1", "2", "3"), None)),
    ],
)
def test_data_path_rules(items, blend):
    assert parse_data_path(items) == blend


@pytest.mark.parametrize(
    "items, culprit",
    [
        (["0.3", "a", "b", "0.7"], "'b'"),
        (["a", "x", "0.7", "b"], "'a'"),
        (["0", "a", "1", "b"], "'0'"),
        (["1", "a", "-1", "b"], "'-1'"),
        (["nan", "a"], "'nan'"),
        (["inf", "a"], "'inf'"),
    ],
)
def test_bad_weights_are_refused_by_name(items, culprit):
    with pytest.raises(ConfigError, match="--valid-data-path must be prefixes only, or WEIGHT PREFIX") as error:
        parse_data_path(items, "--valid-data-path")
    assert culprit in str(error.value)


@pytest.mark.parametrize("vector", VECTORS["build_blending_indices"])
def test_blend_takes_each_data_sets_samples_in_order(tmp_path, vector):
    datasets = [Numbers(d) for d in range(len(vector["weights"]))]
    blend = BlendedDataset(
        datasets, [10 * weight for weight in vector["weights"]], vector["size"], IndexCache(tmp_path)
    )
    expected = list(zip(vector["dataset_index"], vector["dataset_sample_index"]))
    assert [tuple(sample["tokens"]) for sample in blend] == expected
    assert blend.padding()["tokens"].tolist() == [0, -1]


def test_weights_count_samples_not_sizes(tmp_path):
    """A of 10 and B of 20 samples, 1:1: as many of each, whatever their sizes."""
    blend = BlendedDataset([Numbers(0, 10), Numbers(1, 20)], [1, 1], 20, IndexCache(tmp_path))
    assert blend.taken(0, 20) == [10, 10]
    assert blend.taken(3, 6) == [1, 2]


def test_samples_due_rounds_up():
    assert samples_due([3, 1], 10) == [8, 3]
    assert normalized([3, 1]) == [0.75, 0.25]


def test_the_blend_takes_no_more_than_what_is_due(tmp_path):
    weights = [900] + [1] * 100  # what is due adds up to far more than the size
    blend = BlendedDataset([Numbers(d) for d in range(101)], weights, 10, IndexCache(tmp_path))
    assert (np.array(blend.taken(0, 10)) <= samples_due(weights, 10)).all()


def test_fingerprint_tells_weights_and_members(tmp_path):
    def fingerprint(names, weights, size=10):
        return BlendedDataset([Numbers(name) for name in names], weights, size, IndexCache(tmp_path)).fingerprint

    base = fingerprint([0, 1], [1, 2])
    assert fingerprint([0, 1], [2, 4]) == fingerprint([0, 1], [1, 2], size=20) == base
    assert len({base, fingerprint([0, 1], [1, 3]), fingerprint([1, 0], [1, 2]), fingerprint([0, 2], [1, 2])}) == 4


def test_samples_outside_are_an_error(tmp_path):
    with pytest.raises(IndexError, match="has 4 samples; asked for number 4"):
        BlendedDataset([Numbers(0)], [1], 4, IndexCache(tmp_path))[4]


def test_too_many_data_sets_are_refused(tmp_path):
    with pytest.raises(DataError, match="up to 32767 data sets; given 32768"):
        BlendedDataset([Numbers(0)] * 32768, [1] * 32768, 1, IndexCache(tmp_path))

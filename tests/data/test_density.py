import pytest

from megalite.data.blend import Blend
from megalite.data.density import tokens_per_byte
from megalite.data.sidecar import Sidecar, write_sidecar


@pytest.fixture
def corpora(tmp_path):
    """a: 100 tokens of 400 bytes; b: 300 tokens of 600 bytes; c: written by something that counted no bytes."""
    for name, tokens, text_bytes in (("a", 100, 400), ("b", 300, 600)):
        summary = {"tokens_per_byte": tokens / text_bytes}
        write_sidecar(str(tmp_path / name), Sidecar("t", 10, 0, True, 1, tokens, summary))
    write_sidecar(str(tmp_path / "c"), Sidecar("t", 10, 0, True, 1, 50))
    return {name: str(tmp_path / name) for name in "abcd"}


def test_one_corpus(corpora):
    assert tokens_per_byte(Blend((corpora["a"],), None)) == 0.25


def test_several_by_size_or_weight(corpora):
    by_size = Blend((corpora["a"], corpora["b"]), None)
    assert tokens_per_byte(by_size) == pytest.approx(400 / 1000)
    # of 4 tokens, 3 are of a, with 4 bytes each, and 1 is of b, with 2 bytes
    by_weight = Blend((corpora["a"], corpora["b"]), (3.0, 1.0))
    assert tokens_per_byte(by_weight) == pytest.approx(4 / 14)


def test_unknown_unless_every_corpus_has_it(corpora):
    for others in (("c",), ("d",), ("a", "c"), ("a", "d")):
        assert tokens_per_byte(Blend(tuple(corpora[name] for name in others), None)) is None
    assert tokens_per_byte(Blend((), None)) is None

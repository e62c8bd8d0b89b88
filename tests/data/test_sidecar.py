import pytest

from megalite.data.sidecar import Sidecar, check_tokenizer, read_sidecar, write_sidecar
from megalite.errors import DataError

SIDECAR = Sidecar(
    tokenizer="abc", vocab_size=100, eod=99, append_eod=True, num_documents=3, num_tokens=12, summary={"lines": 3}
)


@pytest.fixture
def prefix(tmp_path):
    write_sidecar(str(tmp_path / "c"), SIDECAR)
    return str(tmp_path / "c")


def test_round_trip(prefix):
    assert read_sidecar(prefix) == SIDECAR


def test_the_same_tokenizer_passes(prefix):
    check_tokenizer(prefix, vocab_size=100, eod=99, tokenizer="abc")
    check_tokenizer(prefix, vocab_size=100, eod=99)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"vocab_size": 101, "eod": 99}, r"which has vocabulary size 100 \(now 101\): give that"),
        ({"vocab_size": 100, "eod": 0}, r"end-of-document id 99 \(now 0\)"),
        ({"vocab_size": 100, "eod": None}, r"end-of-document id 99 \(now None\)"),
        ({"vocab_size": 100, "eod": 99, "tokenizer": "xyz"}, r"tokenizer fingerprint abc \(now xyz\)"),
    ],
)
def test_another_tokenizer_is_refused(prefix, given, message):
    with pytest.raises(DataError, match=message):
        check_tokenizer(prefix, **given)


def test_a_corpus_without_description_passes(tmp_path):
    assert read_sidecar(str(tmp_path / "foreign")) is None
    check_tokenizer(str(tmp_path / "foreign"), vocab_size=5, eod=1)


@pytest.mark.parametrize("content", ["{", '{"tokenizer": "a"}', '{"unknown": 1}', "[]"])
def test_a_damaged_description_is_refused(tmp_path, content):
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(DataError, match=r"c\.json must be a description written beside the corpus"):
        read_sidecar(str(tmp_path / "c"))

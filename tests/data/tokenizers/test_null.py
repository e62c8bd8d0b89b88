import pytest

from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import TokenizerError


def build(vocab_size, **options):
    return build_tokenizer(TokenizerOptions(tokenizer_type="NullTokenizer", vocab_size=vocab_size, **options))


def test_the_text_is_the_ids():
    tokenizer = build(100)
    assert (tokenizer.vocab_size, tokenizer.eod) == (101, 100)
    assert tokenizer.encode(" 3 0\n99  100 ") == [3, 0, 99, 100]
    assert tokenizer.encode_batch(["1 2", "", "7"]) == [[1, 2], [], [7]]
    assert tokenizer.decode([3, 0, 99]) == "3 0 99"


def test_the_fingerprint_is_that_of_the_vocabulary_size():
    assert build(100).fingerprint == build(100).fingerprint != build(101).fingerprint


@pytest.mark.parametrize("text", ["1 two 3", "1.5", "1,2"])
def test_text_that_is_no_integers(text):
    with pytest.raises(TokenizerError, match="NullTokenizer reads integers with spaces between them; given"):
        build(100).encode(text)


@pytest.mark.parametrize("text, given", [("5 101", "5 to 101"), ("-1 5", "-1 to 5")])
def test_ids_outside_the_vocabulary(text, given):
    with pytest.raises(TokenizerError, match=f"must be 0 to 100; given {given}"):
        build(100).encode(text)


@pytest.mark.parametrize("vocab_size", [None, 0, -3])
def test_the_vocabulary_size_must_be_given(vocab_size):
    with pytest.raises(TokenizerError, match=f"needs --vocab-size.*given {vocab_size}"):
        build(vocab_size)


def test_an_eod_token_has_no_meaning():
    with pytest.raises(TokenizerError, match="--eod-token .* end-of-document token is 9"):
        build(9, eod_token="<eod>")

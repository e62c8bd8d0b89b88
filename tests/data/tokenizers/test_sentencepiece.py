import sys

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import TokenizerError
from tests.data.tokenizers.samples import MULTILINGUAL, sentencepiece_model


KINDS = {
    "bpe": {"model_type": "bpe", "vocab_size": 700, "byte_fallback": True, "normalization_rule_name": "identity"},
    "unigram": {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    return sentencepiece_model(tmp_path_factory.mktemp("sp") / "tokenizer.model", **KINDS[request.param])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return sentencepiece_model(tmp_path_factory.mktemp("sp") / "tokenizer.model", character_coverage=1.0)


def build(path, kind="SentencePieceTokenizer", **options):
    return build_tokenizer(TokenizerOptions(tokenizer_type=kind, tokenizer_model=str(path), **options))


def test_ids_and_texts_are_those_of_the_library(model):
    tokenizer, library = build(model), sentencepiece.SentencePieceProcessor(model_file=str(model))
    expected = [library.encode(text) for text in MULTILINGUAL]
    assert tokenizer.encode_batch(MULTILINGUAL) == expected
    assert [tokenizer.encode(text) for text in MULTILINGUAL] == expected
    assert [tokenizer.decode(ids) for ids in expected] == [library.decode(ids) for ids in expected]
    assert tokenizer.vocab_size == library.get_piece_size()
    assert len({token_id for ids in expected for token_id in ids}) > 100, "so few tokens show nothing"


@given(
    st.lists(
        st.sampled_from([*"abe 1'\n\t.<>/", "</s>", "  ", "é", "e\u0301", "는", "है", "ُ", "\u200d", "😀", "\x00"])
    ).map("".join)
)
def test_any_mixture_is_as_in_the_library(model, text):
    assert build(model).encode(text) == sentencepiece.SentencePieceProcessor(model_file=str(model)).encode(text)


def test_special_tokens_are_the_models(tmp_path):
    tokenizer = build(sentencepiece_model(tmp_path / "t5.model", **KINDS["unigram"]))
    assert (tokenizer.eod, tokenizer.special.eos, tokenizer.special.pad, tokenizer.special.unk) == (1, 1, 0, 2)
    assert tokenizer.special.bos is None and tokenizer.special.mask is None
    albert = build(sentencepiece_model(tmp_path / "albert.model", control_symbols="[CLS],[SEP],[MASK]"))
    assert (albert.special.cls, albert.special.sep, albert.special.mask) == (3, 4, 5)


def test_a_quoted_control_token_is_ordinary_text(plain):
    tokenizer = build(plain)
    assert tokenizer.eod == 2 and 2 not in tokenizer.encode("the end </s>")


def test_control_tokens_are_seen_in_decoded_text(plain):
    tokenizer = build(plain)
    ids = tokenizer.encode("quick fox")
    assert tokenizer.decode([1, *ids, 2, 1, *ids]) == "<s>quick fox</s><s>quick fox"


def test_sentinels_follow_the_pieces(plain):
    without, tokenizer = build(plain), build(plain, vocab_extra_ids=3)
    first = without.vocab_size
    assert (tokenizer.vocab_size, tokenizer.special.sentinels) == (first + 3, (first, first + 1, first + 2))
    assert without.special.sentinels == ()
    assert tokenizer.decode([*tokenizer.encode("quick"), first + 1]) == "quick<extra_id_1>"
    assert first not in tokenizer.encode("<extra_id_0>")
    assert tokenizer.fingerprint != without.fingerprint
    with pytest.raises(TokenizerError, match="--vocab-extra-ids must be at least 0; given -1"):
        build(plain, vocab_extra_ids=-1)


def test_a_model_without_an_end_of_sequence(tmp_path):
    path = sentencepiece_model(tmp_path / "x.model", eos_id=-1)
    assert build(path).eod is None
    assert build(path, eod_token="<s>").eod == 1
    with pytest.raises(TokenizerError, match="--eod-token must be a token of .*x.model; given '<end>'"):
        build(path, eod_token="<end>")


@pytest.mark.parametrize("kind", ["GPTSentencePieceTokenizer", "Llama2Tokenizer"])
def test_megatrons_other_names_mean_the_same(plain, kind):
    assert build(plain, kind).fingerprint == build(plain).fingerprint
    assert build(plain, kind).encode(MULTILINGUAL[0]) == build(plain).encode(MULTILINGUAL[0])


def test_ids_outside_the_vocabulary_cannot_be_decoded(plain):
    tokenizer = build(plain)
    with pytest.raises(TokenizerError, match=rf"ids must be 0 to {tokenizer.vocab_size - 1}; given 5 to 99999"):
        tokenizer.decode([5, 99999])


def test_text_that_is_no_text(plain):
    with pytest.raises(TokenizerError, match="SentencePieceTokenizer cannot encode a text"):
        build(plain).encode("half a pair \ud800")


@pytest.mark.parametrize("content", [b"", b"not a model", b'{"model": {}}'])
def test_a_file_that_is_no_model(tmp_path, content):
    (tmp_path / "x.model").write_bytes(content)
    with pytest.raises(
        TokenizerError, match="--tokenizer-model must be a SentencePiece .model; .*x.model cannot be read"
    ):
        build(tmp_path / "x.model")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TokenizerError, match="--tokenizer-model must be an existing file .*none.model"):
        build(tmp_path / "none.model")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_with_its_remedy(plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(TokenizerError, match=r"needs the package sentencepiece.*pip install megalite\[sentencepiece\]"):
        build(plain)

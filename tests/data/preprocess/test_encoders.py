import json

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, pre_tokenizers, processors

from megalite.data.preprocess.encoders import (
    PROBES,
    GigatokenEncoder,
    PlainEncoder,
    batches,
    build_encoder,
    choose_backend,
)
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.data.tokenizers._rust import RustTokenizer
from megalite.errors import TokenizerError
from tests.data.tokenizers.samples import MULTILINGUAL, byte_level_bpe

TEXTS = [*MULTILINGUAL, *PROBES, "a <|endoftext|> b<|endoftext|><|endoftext|>"]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory) -> RustTokenizer:
    model = str(byte_level_bpe(tmp_path_factory.mktemp("tok")))
    return build_tokenizer(TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=model))


def variant(tokenizer: RustTokenizer, **parts) -> RustTokenizer:
    description = json.loads(tokenizer.backend.to_str())
    return RustTokenizer(
        tokenizers.Tokenizer.from_str(json.dumps({**description, **parts})), "HuggingFaceTokenizer", ""
    )


def wrapped(tokenizer: RustTokenizer) -> RustTokenizer:
    other = variant(tokenizer)
    special = [("<|endoftext|>", other.token_id("<|endoftext|>")), ("a", other.token_id("a"))]
    other.backend.post_processor = processors.TemplateProcessing(single="<|endoftext|> a $A a", special_tokens=special)
    return other


def lists(rows) -> list[list[int]]:
    return [row.tolist() for row in np.split(rows.values, rows.ends[:-1])] if len(rows.lengths) else []


@pytest.mark.parametrize("kind", [PlainEncoder, GigatokenEncoder])
def test_both_encoders_give_the_ids_of_the_library(bpe, kind):
    encoder = kind(bpe)
    assert lists(encoder(TEXTS)) == bpe.encode_batch(TEXTS)
    assert lists(encoder([])) == []
    assert lists(encoder([""])) == [[]]


def test_gigatoken_adds_what_the_tokenizer_adds_around_a_text(bpe):
    tokenizer = wrapped(bpe)
    assert lists(GigatokenEncoder(tokenizer)(TEXTS)) == tokenizer.encode_batch(TEXTS)
    assert choose_backend("auto", tokenizer, TEXTS).backend == "gigatoken"


def test_a_long_text_is_encoded_in_pieces_with_the_same_result(bpe, monkeypatch):
    sizes = []
    monkeypatch.setattr("megalite.data.preprocess.encoders._BATCH_CHARACTERS", 50)
    monkeypatch.setattr(
        "megalite.data.preprocess.encoders.inner_ids",
        lambda tokenizer, texts: sizes.append(len(texts[0])) or [bpe.encode(text) for text in texts],
    )
    texts = ["a", "some words and more, " * 40, "", "b", "x" * 500]
    assert lists(PlainEncoder(bpe)(texts)) == [bpe.encode(text) for text in texts]
    assert max(sizes[:-1]) <= 50 and sizes[-1] == 500, "and what has no place for a cut, in one piece"


def test_pieces_of_a_long_text_are_surrounded_once(bpe, monkeypatch):
    monkeypatch.setattr("megalite.data.preprocess.encoders._BATCH_CHARACTERS", 50)
    tokenizer = wrapped(bpe)
    text = "some words and more, " * 40
    assert lists(PlainEncoder(tokenizer)([text])) == [tokenizer.encode(text)]


def test_batches_keep_order_and_size():
    assert batches(["aa", "b", "cccc", "", "d"], 3) == [["aa", "b"], ["cccc"], ["", "d"]]
    assert batches([], 3) == []


def test_gigatoken_is_chosen_where_it_is_equal(bpe):
    choice = choose_backend("auto", bpe, MULTILINGUAL)
    assert choice.backend == "gigatoken"
    assert f"equal on the first {len(MULTILINGUAL)} texts and {len(PROBES)} probes" in choice.reason
    assert choose_backend("gigatoken", bpe, MULTILINGUAL).backend == "gigatoken"
    assert choose_backend("tokenizers", bpe, MULTILINGUAL).backend == "tokenizers"


def unequal(bpe) -> RustTokenizer:
    """gigatoken does not mind that a token counts as a whole word only."""
    other = variant(bpe)
    other.backend.add_tokens([AddedToken("and", single_word=True)])
    return RustTokenizer(other.backend, "HuggingFaceTokenizer", "")


def unsupported(bpe) -> RustTokenizer:
    other = variant(bpe)
    other.backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return other


@pytest.mark.parametrize(
    "make, reason",
    [
        (unequal, "gigatoken's ids differ on the text 'x andand y'"),
        (unsupported, "gigatoken refuses this tokenizer: "),
        (
            lambda _: build_tokenizer(TokenizerOptions(tokenizer_type="NullTokenizer", vocab_size=9)),
            "gigatoken refuses this tokenizer: it does not know a NullTokenizer",
        ),
    ],
)
def test_where_gigatoken_is_not_equal_the_reason_is_given(bpe, make, reason):
    tokenizer = make(bpe)
    choice = choose_backend("auto", tokenizer, ["1"])
    assert (choice.backend, reason in choice.reason) == ("tokenizers", True), choice.reason
    with pytest.raises(
        TokenizerError, match="--tokenizer-backend gigatoken needs a tokenizer that gigatoken encodes alike"
    ):
        choose_backend("gigatoken", tokenizer, ["1"])


def test_a_difference_on_the_corpus_itself_is_found(bpe, monkeypatch):
    monkeypatch.setattr("megalite.data.preprocess.encoders.PROBES", ())
    other = variant(bpe)
    other.backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    monkeypatch.setattr(
        GigatokenEncoder, "__call__", lambda self, texts: PlainEncoder(bpe)([text.replace("é", "e") for text in texts])
    )
    assert choose_backend("auto", other, ["abc"]).backend == "gigatoken"
    choice = choose_backend("auto", other, ["abc", "café " + "x" * 100])
    assert choice.reason == f"gigatoken's ids differ on the text {('café ' + 'x' * 100)[:60]!r}..."


def test_without_the_package_its_name_is_told(bpe, monkeypatch):
    monkeypatch.setattr("megalite.data.preprocess.encoders.importlib.util.find_spec", lambda name: None)
    assert choose_backend("auto", bpe, []).reason == "gigatoken is not installed (pip install megalite[fast])"
    with pytest.raises(TokenizerError, match=r"pip install megalite\[fast\]"):
        choose_backend("gigatoken", bpe, [])


def test_the_chosen_encoder_is_built(bpe):
    assert isinstance(build_encoder("gigatoken", bpe), GigatokenEncoder)
    assert isinstance(build_encoder("tokenizers", bpe), PlainEncoder)

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from megalite.data.preprocess.encoders import PROBES, GigatokenEncoder, choose_backend
from megalite.data.preprocess.stand_in import added_around
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.data.tokenizers._rust import RustTokenizer
from tests.data.tokenizers.samples import MULTILINGUAL, byte_level_bpe, ranked_tokens, ranks, sentencepiece_model

LLAMA = {
    "model_type": "bpe",
    "vocab_size": 700,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
}


def build(kind, model, **options):
    return build_tokenizer(TokenizerOptions(tokenizer_type=kind, tokenizer_model=str(model), **options))


def assert_stands_in(tokenizer, quoted):
    texts = [*MULTILINGUAL, *PROBES, *quoted, " ".join(quoted), "".join(quoted)]
    rows = GigatokenEncoder(tokenizer)(texts)
    assert [row.tolist() for row in np.split(rows.values, rows.ends[:-1])] == tokenizer.encode_batch(texts)
    assert choose_backend("auto", tokenizer, MULTILINGUAL).backend == "gigatoken"


def test_sentencepiece(tmp_path):
    tokenizer = build(
        "SentencePieceTokenizer", sentencepiece_model(tmp_path / "tokenizer.model", **LLAMA), vocab_extra_ids=2
    )
    assert_stands_in(tokenizer, ["</s>", "<s>", "<unk>", "<0x41>", "<extra_id_0>"])


@pytest.mark.parametrize(
    "options, text",
    [({"user_defined_symbols": ["[INST]"]}, "'[INST]'"), ({"remove_extra_whitespaces": True}, "a")],
    ids=["symbols that users define", "spaces removed"],
)
def test_sentencepiece_models_that_gigatoken_encodes_otherwise_are_found_out(tmp_path, options, text):
    model = sentencepiece_model(tmp_path / "tokenizer.model", **{**LLAMA, **options})
    choice = choose_backend("auto", build("SentencePieceTokenizer", model), ["x"])
    assert choice.backend == "tokenizers" and "gigatoken's ids differ on the text" in choice.reason
    assert text in choice.reason


@pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base", "llama3"])
def test_tiktoken(tmp_path, name):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(ranks(ranked_tokens(tmp_path)))
    tokenizer = build("TikTokenizer", path, tiktoken_pattern=name)
    assert_stands_in(tokenizer, list(tokenizer.definition.special_tokens)[:5])


def test_what_gigatoken_has_no_form_for_is_left_to_the_tokenizers_own_library(tmp_path):
    unigram = build("SentencePieceTokenizer", sentencepiece_model(tmp_path / "unigram.model"))
    choice = choose_backend("auto", unigram, MULTILINGUAL)
    assert choice.backend == "tokenizers" and "only BPE sentencepiece models" in choice.reason


def test_added_around(tmp_path):
    tokenizer = build("HuggingFaceTokenizer", byte_level_bpe(tmp_path))
    end = tokenizer.token_id("<|endoftext|>")
    assert added_around(tokenizer) == ([], [])
    other = Backend.from_str(tokenizer.backend.to_str())
    other.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", end)]
    )
    assert added_around(RustTokenizer(other, "HuggingFaceTokenizer", "")) == ([end], [])

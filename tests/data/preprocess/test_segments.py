import itertools
import json

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers

from megalite.data.preprocess.segments import _SPLIT_PATTERNS, segment_rule, segments
from megalite.data.tokenizers._rust import RustTokenizer
from tests.data.tokenizers.samples import MULTILINGUAL

GPT2, CL100K, QWEN2 = _SPLIT_PATTERNS
BYTES = dict(add_prefix_space=False, use_regex=False)
WORDS = {
    "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), None),
    "gpt2 with nfc": (pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC()),
    **{
        name: (
            pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rule), "isolated"), pre_tokenizers.ByteLevel(**BYTES)]),
            None,
        )
        for name, rule in (("gpt2 by a pattern", GPT2), ("cl100k", CL100K), ("qwen2", QWEN2))
    },
}
BORDERS = st.text(alphabet="ab1 \n\r\t.,'s!\u3000\u00a0\x1c\u0301é中。<|e>", max_size=30)


def byte_level(words, normalizer=None, special=()) -> RustTokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.normalizer = words, normalizer
    # Merges across everything that may stand side by side, so that a wrong cut shows.
    text = [
        "".join(parts)
        for parts in itertools.product(["a", "b1", ".", "!,", "'s", "é", "\n", "\r\n", " ", "  "], repeat=3)
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=list(special),
    )
    backend.train_from_iterator(text * 3, trainer)
    return RustTokenizer(backend, "test", "")


TOKENIZERS = {name: byte_level(*rules, special=["<|e|>"]) for name, rules in WORDS.items()}


def wordpiece() -> RustTokenizer:
    backend = tokenizers.Tokenizer(
        models.WordPiece({"[UNK]": 0, "a": 1, "b": 2, "##a": 3, "##b": 4, ".": 5, "1": 6}, unk_token="[UNK]")
    )
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return RustTokenizer(backend, "test", "")


TOKENIZERS["bert"] = wordpiece()


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150)
@given(parts=st.lists(st.one_of(BORDERS, st.sampled_from(MULTILINGUAL)), max_size=4), size=st.integers(1, 12))
@example(parts=["a  b\n\n c!\n d. \n\ne 's"], size=1)
def test_the_pieces_of_a_text_encode_to_the_ids_of_the_whole(name, parts, size):
    tokenizer, text = TOKENIZERS[name], "".join(parts)
    rule = segment_rule(tokenizer)
    pieces = list(segments(text, rule, size))
    assert "".join(pieces) == text and all(pieces)
    assert sum((tokenizer.encode(piece) for piece in pieces), []) == tokenizer.encode(text)


def test_pieces_are_as_long_as_allowed_where_a_cut_is_near_and_no_longer_than_to_the_next_elsewhere():
    rule = segment_rule(TOKENIZERS["gpt2"])
    pieces = list(segments("word " * 1000 + "x" * 5000 + " end", rule, 100))
    assert all(90 < len(piece) <= 100 for piece in pieces[:50])
    assert pieces[-2:] == [" " + "x" * 5000, " end"]
    assert list(segments("", rule, 5)) == []
    assert list(segments("a b", rule, 5)) == ["a b"]


def changed(tokenizer: RustTokenizer, **parts) -> RustTokenizer:
    description = json.loads(tokenizer.backend.to_str())
    return RustTokenizer(tokenizers.Tokenizer.from_str(json.dumps({**description, **parts})), "test", "")


def with_token(**flags) -> RustTokenizer:
    tokenizer = changed(TOKENIZERS["gpt2"])
    tokenizer.backend.add_tokens([AddedToken(**flags)])
    return tokenizer


@pytest.mark.parametrize(
    "tokenizer",
    [
        byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        byte_level(pre_tokenizers.Split(Regex(".*"), "isolated")),
        byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Strip()),
        with_token(content="two words"),
        with_token(content="<pad>", lstrip=True),
        with_token(content="<pad>", rstrip=True),
        RustTokenizer(tokenizers.Tokenizer(models.Unigram([("a", 0.0)])), "test", ""),
    ],
    ids=["a space before each text", "unknown pattern", "strip", "a token of two words", "lstrip", "rstrip", "unigram"],
)
def test_no_other_tokenizer_is_cut(tokenizer):
    assert segment_rule(tokenizer) is None

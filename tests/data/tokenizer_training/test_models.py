import json
import sys

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.tokenizer_training.models import bpe, unigram, wordpiece
from megalite.data.tokenizer_training.request import Request
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import DataError, TokenizerError
from tests.data.tokenizers.samples import MULTILINGUAL

T5 = ("<pad>", "</s>", "<unk>")


def test_the_first_merges_are_the_most_frequent_pairs():
    # pairs within words: "ab" 6 times, then " ab" as a whole 4 times, "cd" 3 times, all others at most twice
    tokenizer = bpe.train(iter(["ab ab ab", "ab ab ab", "cd\ncd\ncd"]), Request(260, ("<end>",)))
    assert tokenizer.get_vocab_size() == 260
    assert tokenizer.token_to_id("<end>") == 0
    assert [tokenizer.decode([merged]) for merged in (257, 258, 259)] == ["ab", " ab", "cd"]


def test_how_often_a_pair_must_occur():
    tokenizer = bpe.train(iter(["ab ab ab cd"]), Request(300, ("<end>",), min_frequency=3))
    assert tokenizer.get_vocab_size() == 258 and tokenizer.token_to_id("ab") == 257


BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def pieces(tokenizer):
    return sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)


def test_word_pieces_worked_out_by_hand():
    # words: abc abc xabc , ab bc 猫 abc; inside of them bc follows a 4 times, and then the pair (a, bc) occurs 3 times
    tokenizer = wordpiece.train(iter(["abc ABC xabc, ab bc 猫abc"]), Request(100, ("[UNK]",), unknown="[UNK]"))
    first_characters, inner_characters = ["a", "x", ",", "b", "猫"], ["##a", "##b", "##c"]
    assert pieces(tokenizer)[:9] == ["[UNK]", *inner_characters, *first_characters]
    assert pieces(tokenizer)[9:] in (["ab", "abc"], ["##bc", "abc"])
    assert tokenizer.encode("q Abc,猫 xa").tokens == ["[UNK]", "abc", ",", "猫", "x", "##a"]


def test_case_and_accents():
    text = "Höher und höher"
    uncased = wordpiece.train(iter([text] * 3), Request(100, ("[UNK]",), unknown="[UNK]"))
    assert uncased.encode("HOHER Höher!").tokens == ["hoher", "hoher", "[UNK]"]
    cased = wordpiece.train(iter([text] * 3), Request(100, ("[UNK]",), unknown="[UNK]", cased=True))
    assert cased.encode("Höher höher hoher").tokens == ["Höher", "höher", "[UNK]"]


def test_word_pieces_serve_as_a_berts_vocabulary(tmp_path):
    tokenizer = wordpiece.train(iter(MULTILINGUAL * 3), Request(550, BERT, unknown="[UNK]"))
    assert tokenizer.get_vocab_size() == 550
    (tmp_path / "vocab.txt").write_text("\n".join(pieces(tokenizer)), encoding="utf-8")
    bert = build_tokenizer(
        TokenizerOptions(tokenizer_type="BertWordPieceLowerCase", vocab_file=str(tmp_path / "vocab.txt"))
    )
    assert [tokenizer.encode(text).ids for text in MULTILINGUAL] == bert.encode_batch(MULTILINGUAL)


@pytest.fixture(scope="module")
def pair():
    """Our Unigram tokenizer, and SentencePiece with the model that it is made of."""
    models = []
    original = sentencepiece.SentencePieceTrainer.train
    with pytest.MonkeyPatch.context() as patch:

        def train(model_writer, **options):
            original(model_writer=model_writer, **options)
            models.append(model_writer.getvalue())

        patch.setattr(sentencepiece.SentencePieceTrainer, "train", train)
        tokenizer = unigram.train(iter(MULTILINGUAL * 3), Request(400, T5, unknown="<unk>"))
    return tokenizers.Tokenizer.from_str(tokenizer.to_str()), sentencepiece.SentencePieceProcessor(
        model_proto=models[0]
    )


def test_unigram_is_as_in_the_library(pair):
    tokenizer, library = pair
    expected = [library.encode(unigram.t5_normalizer().normalize_str(text)) for text in MULTILINGUAL]
    assert [tokenizer.encode(text).ids for text in MULTILINGUAL] == expected
    assert len({token_id for ids in expected for token_id in ids}) > 150, "so few tokens show nothing"
    english = MULTILINGUAL[0]
    assert tokenizer.decode(library.encode(english)) == library.decode(library.encode(english)) == english


PARTS = [
    *"aeihlos 1'\n\t.▁",
    "The",
    "  ",
    "quick",
    "é",
    "e\u0301",
    "ﬁ",
    "Ⅳ",
    "猫",
    "は",
    "한글",
    "है",
    "ُ",
    "\u200d",
    "\u200c",
    "😀",
    "\x00",
    "\xad",
    "～",
    "½",
]


@given(st.lists(st.sampled_from(PARTS)).map("".join))
def test_any_mixture_is_as_in_the_library(pair, text):
    tokenizer, library = pair
    assert tokenizer.encode(text).ids == library.encode(unigram.t5_normalizer().normalize_str(text))


def test_the_normalisation_is_t5s():
    ours = unigram.t5_normalizer()
    rule = {"rule_name": "nmt_nfkc", "add_dummy_prefix": False, "escape_whitespaces": False}
    library = sentencepiece.SentencePieceNormalizer(**rule, remove_extra_whitespaces=True)
    texts = {code: f"a{chr(code)} b" for code in range(0x110000) if not 0xD800 <= code < 0xE000}
    differing = [code for code, text in texts.items() if ours.normalize_str(text) != library.normalize(text)]
    # Marks in another order, the tilde, the era of 2019, and letters that are younger than the library's table or ours.
    younger = [range(0xA7F1, 0xA7F5), range(0xAB69, 0xAB6A), range(0x105C9, 0x1DF3C), range(0x1E030, 0x1FBFA)]
    assert [code for code in differing if not any(code in part for part in younger)] == [0x344, 0x32FF, 0xFF5E]
    for text in (*MULTILINGUAL, "  two  spaces ", "ﬁnal \u200c mark", "a\u200bb\x07c\u2028d"):
        assert ours.normalize_str(text) == library.normalize(text)


def test_no_mark_is_lost_behind_a_ligature():
    assert unigram.t5_normalizer().normalize_str("ﬁ\u064f ½\u0301") == "fi\u064f 1\u20442\u0301"


def test_long_lines_are_cut_at_spaces():
    text = "word " * 1000 + "\n" + "x" * 2500
    parts = list(unigram.sentences(iter([text])))
    assert "".join(parts) == text.replace("\n", "")
    assert max(map(len, parts)) <= 1000 and all(part.endswith("word ") for part in parts[:5])


def test_characters_beyond_the_coverage_are_unknown():
    texts = ["abcdefgh" * 50 + "ж"]
    assert (
        unigram.train(iter(texts), Request(50, T5, unknown="<unk>", character_coverage=1.0)).token_to_id("ж")
        is not None
    )
    assert (
        unigram.train(iter(texts), Request(50, T5, unknown="<unk>", character_coverage=0.99)).token_to_id("ж") is None
    )


def test_nothing_but_white_space():
    with pytest.raises(DataError, match="--input must hold text that sentencepiece can learn from; it says"):
        unigram.train(iter([" \n\t", ""]), Request(400, T5, unknown="<unk>"))


def test_other_special_tokens_take_the_places_in_front():
    tokenizer = unigram.train(iter(MULTILINGUAL), Request(400, ("<s>", "<unk>", "</s>", "<mask>"), unknown="<unk>"))
    vocab = json.loads(tokenizer.to_str())["model"]
    assert [token for token, _ in vocab["vocab"][:4]] == ["<s>", "<unk>", "</s>", "<mask>"] and vocab["unk_id"] == 1
    assert tokenizer.encode("\U00012345").ids[-1] == 1


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(TokenizerError, match=r"--model-type unigram needs the package.*megalite\[sentencepiece\]"):
        unigram.train(iter(["a"]), Request(400, T5, unknown="<unk>"))

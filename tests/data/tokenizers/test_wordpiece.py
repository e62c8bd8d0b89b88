import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import TokenizerError
from tests.data.tokenizers.samples import MULTILINGUAL

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def build(path, kind="BertWordPieceLowerCase", **options):
    return build_tokenizer(TokenizerOptions(tokenizer_type=kind, vocab_file=str(path), **options))


def write_vocab(path, tokens):
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["BertWordPieceLowerCase", "BertWordPieceCase"])
def trained(request, tmp_path_factory):
    """A vocabulary that knows most of MULTILINGUAL, made by the library's own trainer."""
    library = BertWordPieceTokenizer(lowercase=request.param.endswith("LowerCase"))
    library.train_from_iterator(MULTILINGUAL[:-3] * 3, vocab_size=300, show_progress=False, special_tokens=SPECIAL)
    vocab = sorted(library.get_vocab(), key=library.get_vocab().get)
    return build(write_vocab(tmp_path_factory.mktemp("bert") / "vocab.txt", vocab), request.param), vocab


def is_punctuation(char):
    return (
        char.isascii()
        and not char.isalnum()
        and char.isprintable()
        and char != " "
        or unicodedata.category(char)[0] == "P"
    )


def is_ideograph(char):
    blocks = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F)]
    return any(first <= ord(char) <= last for first, last in blocks)


def reference_words(text, lowercase):
    """BERT's first pass, from its paper's code: clean, space out ideographs, lower-case, split at punctuation."""
    cleaned = []
    for char in text:
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            cleaned.append(" ")
        elif unicodedata.category(char)[0] == "C" or char == "\ufffd":
            continue
        else:
            cleaned.append(f" {char} " if is_ideograph(char) else char)
    text = "".join(cleaned)
    if lowercase:
        text = "".join(
            char for char in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(char) != "Mn"
        )
    return "".join(f" {char} " if is_punctuation(char) else char for char in text).split()


def reference_encode(text, vocab, lowercase):
    """BERT's second pass: the longest piece that fits, again and again; a word with a gap is unknown as a whole."""
    ids = []
    for word in reference_words(text, lowercase):
        pieces, start = [], 0
        while start < len(word):
            ends = [end for end in range(len(word), start, -1) if ("##" if start else "") + word[start:end] in vocab]
            if not ends:
                pieces = [vocab.index("[UNK]")]
                break
            pieces.append(vocab.index(("##" if start else "") + word[start : ends[0]]))
            start = ends[0]
        ids += pieces
    return ids


def test_multilingual_text_is_as_in_the_reference(trained):
    tokenizer, vocab = trained
    lowercase = tokenizer.name == "BertWordPieceLowerCase"
    expected = [reference_encode(text, vocab, lowercase) for text in MULTILINGUAL]
    assert tokenizer.encode_batch(MULTILINGUAL) == expected
    assert len({token_id for ids in expected for token_id in ids}) > 80, "so few tokens show nothing"
    assert any(token.startswith("##") for ids in expected for token in map(vocab.__getitem__, ids))


PARTS = [
    *"aeEhilos 1'\n\t.",
    "The",
    "qu",
    "é",
    "e\u0301",
    "É",
    "猫",
    "は",
    "한글",
    "है",
    "ُ",
    "\u200d",
    "😀",
    "[SEP]",
    "##a",
    "\x00",
    "$",
    "、",
]


@given(st.lists(st.sampled_from(PARTS)).map("".join))
def test_any_mixture_is_as_in_the_reference(trained, text):
    tokenizer, vocab = trained
    assert tokenizer.encode(text) == reference_encode(text, vocab, tokenizer.name == "BertWordPieceLowerCase")


def test_ids_worked_out_by_hand(tmp_path):
    path = write_vocab(
        tmp_path / "vocab.txt", [*SPECIAL, "un", "##aff", "##able", "wor", "wör", "W", "##ör", "##ld", ","]
    )
    assert build(path).encode("Unaffable, WÖRLD xyz") == [5, 6, 7, 13, 8, 12, 1]
    assert build(path, "BertWordPieceCase").encode("unaffable, Wörld WORLD") == [5, 6, 7, 13, 10, 11, 12, 1]
    assert build(path).decode([5, 6, 7, 13, 8, 12]) == "unaffable, world"


def test_special_tokens(tmp_path):
    tokenizer = build(write_vocab(tmp_path / "vocab.txt", [*SPECIAL, "a", "sep", "[", "]"]), vocab_extra_ids=2)
    assert (tokenizer.vocab_size, tokenizer.special.sentinels) == (11, (9, 10))
    special = tokenizer.special
    assert (special.pad, special.unk, special.cls, special.sep, special.mask) == (0, 1, 2, 3, 4)
    assert (special.bos, special.eos, tokenizer.eod) == (2, 3, 3)
    assert tokenizer.encode("a [SEP]") == [5, 7, 6, 8], "a quoted special token is ordinary text"


def test_another_end_of_document(tmp_path):
    path = write_vocab(tmp_path / "vocab.txt", [*SPECIAL, "a"])
    assert build(path, eod_token="[PAD]").eod == 0
    with pytest.raises(TokenizerError, match="--eod-token must be a token of .*given '<eod>'"):
        build(path, eod_token="<eod>")


def test_line_ends_of_unicode_are_part_of_a_token(tmp_path):
    path = write_vocab(tmp_path / "vocab.txt", [*SPECIAL, "a\u2028b", "c\x85", "d"])
    assert build(path).encode("d") == [7]
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert build(path).encode("d") == [7]


def test_the_fingerprint_is_that_of_vocabulary_and_case(tmp_path):
    path = write_vocab(tmp_path / "a.txt", [*SPECIAL, "a"])
    other = write_vocab(tmp_path / "b.txt", [*SPECIAL, "b"])
    prints = {build(path).fingerprint, build(path, "BertWordPieceCase").fingerprint, build(other).fingerprint}
    assert len(prints) == 3 and build(path).fingerprint in prints


@pytest.mark.parametrize(
    "content, message",
    [
        (b"[PAD]\n[UNK]\na\n", r"must hold BERT's .*vocab.txt lacks \[CLS\] \[SEP\] \[MASK\]"),
        (b"a\nb\na\n", r"must hold each token once; .*vocab.txt has 'a' on lines 1 and 3"),
        (b"\xff\xfe\n", r"must be text in UTF-8"),
        (b"", r"lacks \[PAD\]"),
    ],
)
def test_a_file_that_is_no_vocabulary(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(TokenizerError, match=message):
        build(tmp_path / "vocab.txt")


def test_a_missing_file_is_named():
    with pytest.raises(TokenizerError, match="--vocab-file must be given: vocab.txt of a BERT tokenizer"):
        build_tokenizer(TokenizerOptions(tokenizer_type="BertWordPieceCase"))

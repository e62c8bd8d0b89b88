import json

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import TokenizerError
from tests.data.tokenizers.samples import MULTILINGUAL, byte_level_bpe, byte_symbols

SPLIT = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def write_files(directory, merges):
    """vocab.json and merges.txt: bytes have the ids 0 to 255, the merges those that follow, <|endoftext|> the last."""
    symbols = byte_symbols() + ["".join(merge) for merge in merges] + ["<|endoftext|>"]
    vocab, merge_file = directory / "vocab.json", directory / "merges.txt"
    vocab.write_text(json.dumps({symbol: number for number, symbol in enumerate(symbols)}))
    merge_file.write_text("\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n", encoding="utf-8")
    return vocab, merge_file


def build(vocab, merges, **options):
    files = {"vocab_file": str(vocab), "merge_file": str(merges)}
    return build_tokenizer(TokenizerOptions(tokenizer_type="GPT2BPETokenizer", **files, **options))


def test_ids_worked_out_by_hand(tmp_path):
    # merges: h+i = 256, space+hi = 257, l+l = 258; the file's order is the order of merging
    tokenizer = build(*write_files(tmp_path, [("h", "i"), ("Ġ", "hi"), ("l", "l")]))
    h, i, l, space = (ord(c) for c in "hil ")
    assert tokenizer.encode("hi hi") == [256, 257]
    assert tokenizer.encode("  hill") == [space, 257, 258]
    assert tokenizer.encode("lll ih") == [258, l, space, i, h]
    assert tokenizer.encode("é") == [0xC3, 0xA9]
    assert (tokenizer.vocab_size, tokenizer.eod) == (260, 259)


def test_a_quoted_end_of_document_is_ordinary_text(tmp_path):
    tokenizer = build(*write_files(tmp_path, []))
    assert tokenizer.encode("<|endoftext|>") == list(b"<|endoftext|>")


def reference_encode(text, merges):
    """GPT-2's algorithm, slowly: split, bytes to symbols, then the best-ranked pair again and again."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    symbol_of = byte_symbols()
    vocab = {symbol: number for number, symbol in enumerate(symbol_of + ["".join(pair) for pair in merges])}
    ids = []
    for word in SPLIT.findall(text):
        parts = [symbol_of[byte] for byte in word.encode("utf-8")]
        while pairs := [pair for pair in zip(parts, parts[1:]) if pair in ranks]:
            best = min(pairs, key=ranks.__getitem__)
            merged, position = [], 0
            while position < len(parts):
                found = tuple(parts[position : position + 2]) == best
                merged.append("".join(best) if found else parts[position])
                position += 2 if found else 1
            parts = merged
        ids += [vocab[part] for part in parts]
    return ids


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gpt2")
    model = json.loads(byte_level_bpe(directory, 600).read_text())["model"]
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    return build(*write_files(directory, merges)), merges


def test_multilingual_text_is_as_in_the_reference_and_round_trips(trained):
    tokenizer, merges = trained
    assert len(merges) > 200, "so few merges show nothing"
    for text in MULTILINGUAL:
        ids = tokenizer.encode(text)
        assert ids == reference_encode(text, merges)
        assert tokenizer.decode(ids) == text


PARTS = [*"abehilos 1'\n\t.", "'s", "'ll", "the", "  ", "é", "는", "है", "\u200d", "😀"]


@given(st.lists(st.sampled_from(PARTS)).map("".join))
def test_any_mixture_is_as_in_the_reference(trained, text):
    tokenizer, merges = trained
    assert tokenizer.encode(text) == reference_encode(text, merges)


def test_the_end_of_document_can_be_named(tmp_path):
    files = write_files(tmp_path, [("h", "i")])
    assert build(*files, eod_token="hi").eod == 256
    with pytest.raises(TokenizerError, match="--eod-token must be a token of .*vocab.json; given '</s>'"):
        build(*files, eod_token="</s>")


def test_the_fingerprint_is_that_of_vocabulary_and_merges(tmp_path):
    vocab, merges = write_files(tmp_path, [("h", "i"), ("l", "l")])
    first = build(vocab, merges).fingerprint
    vocab.write_text(json.dumps(json.loads(vocab.read_text()), indent=3))
    assert build(vocab, merges).fingerprint == first
    merges.write_text("#version: 0.2\nl l\nh i\n")
    assert build(vocab, merges).fingerprint != first


def test_missing_files_name_flag_and_path_and_nothing_is_created(tmp_path):
    vocab, merges = write_files(tmp_path, [])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(TokenizerError, match="--vocab-file must be given"):
        build_tokenizer(TokenizerOptions(tokenizer_type="GPT2BPETokenizer"))
    with pytest.raises(TokenizerError, match="--vocab-file must be an existing file .*missing.json"):
        build(tmp_path / "missing.json", merges)
    with pytest.raises(TokenizerError, match="--merge-file must be an existing file .*missing.txt"):
        build(vocab, tmp_path / "missing.txt")
    assert sorted(tmp_path.iterdir()) == before


def test_files_given_the_wrong_way_round(tmp_path):
    vocab, merges = write_files(tmp_path, [("h", "i")])
    with pytest.raises(TokenizerError, match="merges.txt must be JSON"):
        build(merges, vocab)


def test_a_vocabulary_without_the_bytes_would_lose_text(tmp_path):
    vocab, merges = write_files(tmp_path, [])
    vocab.write_text(json.dumps({"a": 0, "b": 1}))
    with pytest.raises(TokenizerError, match="a symbol for each of the 256 bytes.*lacks 254"):
        build(vocab, merges)


def test_merges_of_another_vocabulary(tmp_path):
    vocab, merges = write_files(tmp_path, [])
    merges.write_text("#version: 0.2\nx y\n")
    with pytest.raises(TokenizerError, match="must fit together"):
        build(vocab, merges)

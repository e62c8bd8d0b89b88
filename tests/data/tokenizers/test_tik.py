import base64
import json
import sys

import pytest
import regex
import tiktoken
import tiktoken_ext.openai_public as published
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.data.tokenizers._encodings import ENCODINGS
from megalite.errors import TokenizerError
from tests.data.tokenizers.samples import MULTILINGUAL, ranked_tokens, ranks, write_json

OF_OPENAI = [name for name in ENCODINGS if name != "llama3"]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return ranked_tokens(tmp_path_factory.mktemp("bpe"))


def write_ranks(path, tokens):
    path.write_bytes(ranks(tokens))
    return path


def entries(tokens):
    return [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode(errors="replace")}
        for rank, token in enumerate(tokens)
    ]


def build(path, **options):
    return build_tokenizer(TokenizerOptions(tokenizer_type="TikTokenizer", tokenizer_model=str(path), **options))


@pytest.fixture(scope="module", params=OF_OPENAI)
def pair(request, tokens, tmp_path_factory):
    """Our tokenizer of a rank file, and the library's own encoding of this name with the same ranks."""
    path = write_ranks(tmp_path_factory.mktemp("ranks") / f"{request.param}.tiktoken", tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            published, "load_tiktoken_bpe", lambda *arguments, **options: {t: n for n, t in enumerate(tokens)}
        )
        definition = published.ENCODING_CONSTRUCTORS[request.param]()
    definition.pop("explicit_n_vocab", None)
    return build(path), tiktoken.Encoding(**definition)


def test_multilingual_text_is_as_in_the_library_and_round_trips(pair):
    tokenizer, library = pair
    expected = [library.encode_ordinary(text) for text in MULTILINGUAL]
    assert tokenizer.encode_batch(MULTILINGUAL) == expected
    assert [tokenizer.decode(ids) for ids in expected] == MULTILINGUAL
    assert len({token_id for ids in expected for token_id in ids}) > 150, "so few tokens show nothing"


def test_special_tokens_are_the_librarys(pair):
    tokenizer, library = pair
    assert {token: tokenizer.token_id(token) for token in library.special_tokens_set} == library._special_tokens
    assert (tokenizer.eod, tokenizer.vocab_size) == (library.eot_token, library.n_vocab)
    assert tokenizer.eod not in tokenizer.encode("a quoted <|endoftext|> is ordinary text")
    assert tokenizer.decode([tokenizer.eod]) == "<|endoftext|>"


@given(
    st.lists(st.sampled_from([*"abDE 12'\n\r\t./", "'LL", "'s", "Ab", "é", "e\u0301", "는", "है", "\u200d", "😀"])).map(
        "".join
    )
)
def test_any_mixture_is_as_in_the_library(pair, text):
    tokenizer, library = pair
    assert tokenizer.encode(text) == library.encode_ordinary(text)


def test_llama_3(tmp_path, tokens):
    tokenizer = build(write_ranks(tmp_path / "tokenizer.model", tokens), tiktoken_pattern="llama3")
    assert (tokenizer.vocab_size, tokenizer.eod) == (128256, 128001)
    names = ["begin_of_text", "finetune_right_pad_id", "start_header_id", "eot_id", "reserved_special_token_247"]
    assert [tokenizer.token_id(f"<|{name}|>") for name in names] == [128000, 128004, 128006, 128009, 128255]
    assert [tokenizer.decode(tokenizer.encode(text)) for text in MULTILINGUAL] == MULTILINGUAL


V2 = regex.compile(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
V1 = regex.compile(r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")


def reference_encode(text, split, tokens):
    """Byte-level BPE, slowly: again and again join the neighbours whose union has the lowest rank."""
    ids = []
    for word in split.findall(text):
        parts = [bytes([byte]) for byte in word.encode("utf-8")]
        while unions := [tokens.index(a + b) for a, b in zip(parts, parts[1:]) if a + b in tokens]:
            best = tokens[min(unions)]
            at = next(n for n in range(len(parts) - 1) if parts[n] + parts[n + 1] == best)
            parts[at : at + 2] = [best]
        ids += map(tokens.index, parts)
    return ids


@pytest.mark.parametrize("name, split", [("v1", V1), ("v2", V2), (None, V2)])
def test_megatrons_file(tmp_path, tokens, name, split):
    path = write_json(tmp_path / "vocab.json", entries(tokens))
    tokenizer = build(path, vocab_size=500, tiktoken_num_special_tokens=20, tiktoken_pattern=name)
    assert tokenizer.vocab_size == 500
    special = tokenizer.special
    found = (special.unk, special.bos, special.eos, special.mask, special.pad, special.cls, special.sep, tokenizer.eod)
    assert found == (0, 1, 2, 3, 4, 5, 6, 2)
    expected = [[20 + token for token in reference_encode(text, split, tokens[:480])] for text in MULTILINGUAL]
    assert tokenizer.encode_batch(MULTILINGUAL) == expected
    assert tokenizer.encode("a</s><SPECIAL_19>") == [20 + ord("a"), 2, 19], "as in Megatron-LM, quoted ones are read"


def tekken(tokens, **parts):
    config = {"pattern": V1.pattern, "default_vocab_size": 400, "default_num_special_tokens": 10}
    return {"config": config, "vocab": entries(tokens), **parts}


def test_mistrals_file(tmp_path, tokens):
    declared = [
        {"rank": 1, "token_str": "<s>", "is_control": True},
        {"rank": 0, "token_str": "<unk>", "is_control": True},
        {"rank": 2, "token_str": "</s>", "is_control": True},
        {"rank": 3, "token_str": "[INST]", "is_control": True},
    ]
    tokenizer = build(write_json(tmp_path / "tekken.json", tekken(tokens, special_tokens=declared)))
    assert (tokenizer.vocab_size, tokenizer.eod, tokenizer.special.bos, tokenizer.special.pad) == (400, 2, 1, None)
    assert (tokenizer.token_id("[INST]"), tokenizer.token_id("<SPECIAL_4>")) == (3, 4)
    expected = [[10 + token for token in reference_encode(text, V1, tokens[:390])] for text in MULTILINGUAL]
    assert tokenizer.encode_batch(MULTILINGUAL) == expected
    assert 2 not in tokenizer.encode("</s>"), "as at Mistral's, a quoted one is ordinary text"
    older = build(write_json(tmp_path / "older.json", tekken(tokens)))
    assert (older.eod, older.special.bos, older.token_id("<SPECIAL_3>")) == (2, 1, 3)


def test_the_end_of_document_can_be_named(tmp_path, tokens):
    path = write_ranks(tmp_path / "cl100k_base.tiktoken", tokens)
    assert build(path, eod_token="<|fim_prefix|>").eod == 100258
    with pytest.raises(TokenizerError, match="--eod-token must be a token of .*given '</s>'"):
        build(path, eod_token="</s>")


def test_the_fingerprint_is_that_of_the_content(tmp_path, tokens):
    first = write_ranks(tmp_path / "a", tokens)
    prints = [
        build(first, tiktoken_pattern=name).fingerprint for name in ("cl100k_base", "llama3", "r50k_base", "p50k_base")
    ]
    assert len(set(prints)) == 3 and prints[2] == prints[3], "p50k_base differs from r50k_base in its ranks only"
    lines = first.read_bytes().splitlines()
    (tmp_path / "b").write_bytes(b"\r\n".join(reversed(lines)))
    assert build(tmp_path / "b", tiktoken_pattern="llama3").fingerprint == prints[1]
    shorter = write_ranks(tmp_path / "c", tokens[:-1])
    assert build(shorter, tiktoken_pattern="llama3").fingerprint != prints[1]


def test_more_spaces_than_a_pattern_can_take(tmp_path, tokens):
    tokenizer = build(write_json(tmp_path / "x.json", entries(tokens)), vocab_size=500, tiktoken_num_special_tokens=20)
    with pytest.raises(TokenizerError, match="TikTokenizer cannot encode a text: .*backtracking"):
        tokenizer.encode(" " * 1_000_000)


def test_ids_without_a_token_cannot_be_decoded(tmp_path, tokens):
    tokenizer = build(write_ranks(tmp_path / "cl100k_base.tiktoken", tokens))
    for token_id in (100_270, 2**40, -1):
        with pytest.raises(TokenizerError, match="TikTokenizer's ids must be those of tokens"):
            tokenizer.decode([token_id])


FILES = {
    "another name": (
        "ranks.tiktoken",
        lambda tokens: ranks(tokens),
        {},
        "encoding of .* must be known.*'ranks': name it with",
    ),
    "unknown encoding": ("x", lambda tokens: ranks(tokens), {"tiktoken_pattern": "v2"}, "given 'v2': name it.*llama3"),
    "no ranks": ("r50k_base.tiktoken", lambda tokens: b"YQ== 0\nYg==\n", {}, "r50k_base.tiktoken:2: a line must hold"),
    "no base64": ("r50k_base.tiktoken", lambda tokens: b"YQ== 0\n? 1\n", {}, "r50k_base.tiktoken:2: a line must hold"),
    "too few bytes": (
        "r50k_base.tiktoken",
        lambda tokens: ranks(tokens[:200]),
        {},
        "each of the 256 bytes; it lacks 56",
    ),
    "ranks of special tokens": (
        "r50k_base.tiktoken",
        lambda tokens: ranks(tokens) + b"eHl4 50256\n",
        {},
        "must leave the ids of its special tokens free",
    ),
    "equal ranks": (
        "r50k_base.tiktoken",
        lambda tokens: ranks(tokens) + b"eHl4 5\n",
        {},
        "each token a rank of its own",
    ),
    "cut-off JSON": (
        "x.json",
        lambda tokens: b'[{"rank": 0',
        {},
        "as Megatron-LM or Mistral write it; JSONDecodeError",
    ),
    "other JSON": (
        "x.json",
        lambda tokens: b'{"model": {}}',
        {},
        "as Megatron-LM or Mistral write it; KeyError: 'config'",
    ),
    "unknown pattern": (
        "x.json",
        lambda tokens: listed(tokens),
        {"tiktoken_pattern": "v3"},
        "must be one of v1, v2 with",
    ),
    "out of order": (
        "x.json",
        lambda tokens: listed(tokens[:300], first=1),
        {"vocab_size": 1300},
        "by rank, 0, 1 and so on",
    ),
    "too few tokens": (
        "x.json",
        lambda tokens: listed(tokens[:300]),
        {},
        "holds 300 different ones: give --vocab-size 1300",
    ),
    "no room": (
        "x.json",
        lambda tokens: listed(tokens),
        {"vocab_size": 300, "tiktoken_num_special_tokens": 3},
        "there are 7, and 3 ids are set aside",
    ),
}


def listed(tokens, first=0):
    return json.dumps([entry | {"rank": entry["rank"] + first} for entry in entries(tokens)]).encode()


@pytest.mark.parametrize("case", FILES)
def test_files_that_cannot_be_used(tmp_path, tokens, case):
    name, content, options, message = FILES[case]
    (tmp_path / name).write_bytes(content(tokens))
    with pytest.raises(TokenizerError, match=message):
        build(tmp_path / name, **options)


def test_a_missing_package_is_named_with_its_remedy(tmp_path, tokens, monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(
        TokenizerError, match=r"TikTokenizer needs the package tiktoken.*pip install megalite\[tiktoken\]"
    ):
        build(write_ranks(tmp_path / "r50k_base.tiktoken", tokens))

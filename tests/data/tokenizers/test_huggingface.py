import json

import pytest
import tokenizers
from tokenizers import models, processors

from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import TokenizerError
from tests.data.tokenizers.samples import MULTILINGUAL, byte_level_bpe, word_level, write_json

WORDS = ["<unk>", "a", "b", "c"]


def build(path, **options):
    return build_tokenizer(
        TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(path), **options)
    )


def test_ids_are_those_of_the_library_and_round_trip(tmp_path):
    path = byte_level_bpe(tmp_path)
    tokenizer, library = build(path), tokenizers.Tokenizer.from_file(str(path))
    expected = [library.encode(text).ids for text in MULTILINGUAL]
    assert tokenizer.encode_batch(MULTILINGUAL) == expected
    assert [tokenizer.encode(text) for text in MULTILINGUAL] == expected
    assert [tokenizer.decode(ids) for ids in expected] == MULTILINGUAL
    assert any(token_id > 256 for ids in expected for token_id in ids), "no merge took part: the test shows nothing"


def test_a_directory_and_its_file_are_the_same(tmp_path):
    path = byte_level_bpe(tmp_path)
    assert build(tmp_path).fingerprint == build(path).fingerprint


def test_the_vocabulary_counts_added_tokens_up_to_the_largest_id(tmp_path):
    path = byte_level_bpe(tmp_path, vocab_size=300)
    library = tokenizers.Tokenizer.from_file(str(path))
    library.add_special_tokens(["<one>", "<two>", "<three>"])
    library.save(str(path))
    tokenizer = build(path)
    assert tokenizer.vocab_size == 303
    assert tokenizer.encode("a<three>")[-1] == 302


def test_a_vocabulary_with_gaps_reaches_to_its_largest_id(tmp_path):
    model = models.WordLevel({"<unk>": 0, "a": 70000}, unk_token="<unk>")
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    assert build(tmp_path).vocab_size == 70001


def test_special_tokens_in_a_text_are_ids(tmp_path):
    tokenizer = build(byte_level_bpe(tmp_path))
    assert tokenizer.encode("<|endoftext|>") == [0] == [tokenizer.eod]
    assert tokenizer.decode([0]) == "<|endoftext|>"


def test_truncation_and_padding_are_switched_off(tmp_path):
    path = word_level(tmp_path / "tokenizer.json", WORDS)
    plain = build(path)
    library = tokenizers.Tokenizer.from_file(str(path))
    library.enable_truncation(2)
    library.enable_padding(length=8)
    library.save(str(path))
    tokenizer = build(path)
    assert tokenizer.encode("a b c a") == [1, 2, 3, 1]
    assert tokenizer.encode("a") == [1]
    assert tokenizer.fingerprint == plain.fingerprint, "the mapping from text to ids is the same"


def test_bpe_dropout_is_switched_off(tmp_path):
    path = byte_level_bpe(tmp_path)
    expected = build(path).encode_batch(MULTILINGUAL)
    content = json.loads(path.read_text())
    content["model"]["dropout"] = 0.9
    assert build(write_json(path, content)).encode_batch(MULTILINGUAL) == expected


def test_the_tokens_around_a_text_are_kept_unless_unwanted(tmp_path):
    template = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 4)])
    path = word_level(tmp_path / "tokenizer.json", [*WORDS, "<s>"], post_processor=template)
    assert build(path).encode("a b") == [4, 1, 2]
    assert build(path, tokenizer_hf_no_include_special_tokens=True).encode("a b") == [1, 2]


@pytest.mark.parametrize("candidate", ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"])
def test_the_one_known_name_is_the_end_of_document(tmp_path, candidate):
    assert build(word_level(tmp_path / "tokenizer.json", [*WORDS, candidate])).eod == 4


def test_two_known_names_leave_the_end_of_document_open(tmp_path):
    path = word_level(tmp_path / "tokenizer.json", [*WORDS, "</s>", "<|endoftext|>"])
    assert build(path).eod is None
    assert build(path, eod_token="</s>").eod == 4


def test_no_known_name_leaves_the_end_of_document_open(tmp_path):
    assert build(word_level(tmp_path / "tokenizer.json", WORDS)).eod is None


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("declared", ["b", {"content": "b", "lstrip": False}])
def test_the_declared_end_of_sequence_goes_before_a_known_name(tmp_path, file, declared):
    word_level(tmp_path / "tokenizer.json", [*WORDS, "</s>"])
    write_json(tmp_path / file, {"eos_token": declared})
    assert build(tmp_path).eod == 2


def test_a_separator_ends_documents_where_nothing_else_does(tmp_path):
    word_level(tmp_path / "tokenizer.json", [*WORDS, "[SEP]"])
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": None, "sep_token": "[SEP]"})
    assert build(tmp_path).eod == 4


def test_files_beside_a_tokenizer_of_another_name_are_not_its_own(tmp_path):
    path = word_level(tmp_path / "words.json", [*WORDS, "</s>"])
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "b"})
    assert build(path).eod == 4


def test_an_end_of_document_outside_the_vocabulary(tmp_path):
    path = word_level(tmp_path / "tokenizer.json", WORDS)
    with pytest.raises(TokenizerError, match="--eod-token says '<eod>', which is not one"):
        build(path, eod_token="<eod>")
    write_json(tmp_path / "tokenizer_config.json", {"eos_token": "<eod>"})
    with pytest.raises(TokenizerError, match="tokenizer_config.json says '<eod>', which is not one"):
        build(path)


def test_the_fingerprint_is_that_of_the_content(tmp_path):
    path = word_level(tmp_path / "a" / "tokenizer.json", WORDS)
    content = json.loads(path.read_text())
    (tmp_path / "b.json").write_text(json.dumps(dict(reversed(content.items())), indent=7))
    other = word_level(tmp_path / "c.json", [*WORDS[:-1], "d"])
    assert build(path).fingerprint == build(tmp_path / "b.json").fingerprint != build(other).fingerprint


def test_a_missing_file_names_flag_and_path_and_creates_nothing(tmp_path):
    with pytest.raises(TokenizerError, match="--tokenizer-model must be given"):
        build_tokenizer(TokenizerOptions(tokenizer_type="HuggingFaceTokenizer"))
    with pytest.raises(TokenizerError, match="--tokenizer-model must be .*given 'openai/gpt2'.*Nothing is fetched"):
        build("openai/gpt2")
    with pytest.raises(TokenizerError, match="there is no file .*tokenizer.json"):
        build(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content, reason",
    [("", "must be JSON"), ("[]", "must hold a JSON object; it holds a list"), ("{}", "cannot be read as one")],
)
def test_a_damaged_file(tmp_path, content, reason):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError, match=f"tokenizer.json.*{reason}"):
        build(tmp_path)


def test_a_text_without_an_encoding(tmp_path):
    model = models.WordLevel({"a": 0}, unk_token="<unk>")  # which the vocabulary lacks
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="HuggingFaceTokenizer cannot encode a text"):
        build(tmp_path).encode("x")

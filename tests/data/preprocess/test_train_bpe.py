import gzip
import json

import pytest

from megalite.data.preprocess.train_bpe import TrainTokenizerOptions, train_tokenizer
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import ConfigError, DataError
from megalite.log import logger
from tests.data.tokenizers.samples import MULTILINGUAL


def train(directory, *inputs, vocab_size=300, **fields):
    options = TrainTokenizerOptions(input=tuple(map(str, inputs)), output_dir=str(directory), vocab_size=vocab_size, **fields)
    train_tokenizer(options)
    return build_tokenizer(TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(directory)))


def write_jsonl(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def test_the_first_merges_are_the_most_frequent_pairs(tmp_path):
    # pairs within words: "ab" 6 times, then " ab" as a whole 4 times, "cd" 3 times, all others at most twice
    tokenizer = train(tmp_path, write_jsonl(tmp_path / "x.jsonl", ["ab ab ab", "ab ab ab", "cd\ncd\ncd"]), vocab_size=260)
    assert tokenizer.vocab_size == 260
    assert tokenizer.decode([0]) == "<|endoftext|>"
    assert [tokenizer.decode([merged]) for merged in (257, 258, 259)] == ["ab", " ab", "cd"]


def test_any_text_round_trips(tmp_path):
    tokenizer = train(tmp_path, write_jsonl(tmp_path / "x.jsonl", ["nothing but English"] * 3))
    assert [tokenizer.decode(tokenizer.encode(text)) for text in MULTILINGUAL] == MULTILINGUAL


def test_special_tokens_come_first_and_the_first_ends_documents(tmp_path):
    tokenizer = train(tmp_path, write_jsonl(tmp_path / "x.jsonl", MULTILINGUAL), special_tokens=("<stop>", "<other>"))
    assert tokenizer.eod == 0
    assert tokenizer.encode("<other>a<stop>")[::2] == [1, 0]
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["tokenizer_class"], config["eos_token"]) == ("PreTrainedTokenizerFast", "<stop>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json", "x.jsonl"]


def test_the_same_text_gives_the_same_file_in_whatever_form_it_comes(tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "packed").mkdir()
    write_jsonl(tmp_path / "plain" / "a.jsonl", MULTILINGUAL[:5])
    write_jsonl(tmp_path / "plain" / "b.json", MULTILINGUAL[5:] * 2)
    for path in (tmp_path / "plain").iterdir():
        (tmp_path / "packed" / (path.name + ".gz")).write_bytes(gzip.compress(path.read_bytes()))
    train(tmp_path / "one", tmp_path / "plain")
    train(tmp_path / "two", tmp_path / "packed")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_plain_text_and_other_keys(tmp_path):
    (tmp_path / "x.txt").write_text("ab ab\nab ab\n")
    (tmp_path / "y.jsonl").write_text('{"title": "ab ab", "body": ["ab", "ab"]}\n')
    plain = train(tmp_path / "plain", tmp_path / "x.txt", vocab_size=258)
    keyed = train(tmp_path / "keyed", tmp_path / "y.jsonl", vocab_size=258, json_keys=("title", "body"))
    assert plain.decode([257]) == keyed.decode([257]) == "ab"


def test_too_little_text_is_warned_of(tmp_path, caplog):
    tokenizer = train(tmp_path, write_jsonl(tmp_path / "x.jsonl", ["ab ab"]), vocab_size=1000)
    assert tokenizer.vocab_size == 258
    assert any("has 258 tokens instead of 1000" in message for message in caplog.messages)


def test_a_vocabulary_too_small_for_the_bytes(tmp_path):
    with pytest.raises(ConfigError, match="--vocab-size must be at least 257: 256 bytes and 1 special tokens; given 256"):
        train(tmp_path, tmp_path / "x.jsonl", vocab_size=256)


def test_no_special_token(tmp_path):
    with pytest.raises(ConfigError, match="--special-tokens must name at least"):
        train(tmp_path, tmp_path / "x.jsonl", special_tokens=())


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.jsonl", b'{"text": "a"}\n{', "x.jsonl:2: malformed JSON.*mend the line"),
        ("x.jsonl", b"", "--input must hold text to train on"),
        ("x.txt", b"a\nb\xff\n", "x.txt:2: text must be UTF-8; byte 0xff"),
    ],
)
def test_unusable_text_leaves_no_tokenizer(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        train(tmp_path / "out", tmp_path / name)
    assert not (tmp_path / "out").exists()

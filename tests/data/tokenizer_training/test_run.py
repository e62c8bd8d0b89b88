import gzip
import json

import pytest
import tokenizers

from megalite.data.tokenizer_training.run import TrainTokenizerOptions, train_tokenizer
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import ConfigError, DataError
from megalite.log import logger
from tests.data.tokenizers.samples import MULTILINGUAL


def train(directory, *inputs, vocab_size=300, **fields):
    options = TrainTokenizerOptions(
        input=tuple(map(str, inputs)), output_dir=str(directory), vocab_size=vocab_size, **fields
    )
    train_tokenizer(options)
    return build_tokenizer(TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(directory)))


def write_jsonl(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "x.jsonl", MULTILINGUAL * 3)


def test_any_text_round_trips(tmp_path):
    tokenizer = train(tmp_path, write_jsonl(tmp_path / "x.jsonl", ["nothing but English"] * 3))
    assert [tokenizer.decode(tokenizer.encode(text)) for text in MULTILINGUAL] == MULTILINGUAL


def test_special_tokens_of_ones_own_come_first_and_the_first_ends_documents(tmp_path, corpus):
    tokenizer = train(tmp_path, corpus, special_tokens=("<stop>", "<other>"))
    assert tokenizer.eod == 0
    assert tokenizer.encode("<other>a<stop>")[::2] == [1, 0]
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["tokenizer_class"], config["eos_token"]) == ("PreTrainedTokenizerFast", "<stop>")
    names = ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


# model type, preset, ids of special tokens by role, what stands around a text and around two
PRESETS = [
    ("bpe", None, {"bos": 0, "eos": 0, "unk": 0}, ([], []), ([], [], [])),
    (
        "bpe",
        "roberta",
        {"bos": 0, "cls": 0, "pad": 1, "eos": 2, "sep": 2, "unk": 3, "mask": 4},
        ([0], [2]),
        ([0], [2, 2], [2]),
    ),
    ("wordpiece", None, {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}, ([2], [3]), ([2], [3], [3])),
    ("unigram", None, {"pad": 0, "eos": 1, "unk": 2}, ([], [1]), ([], [1], [1])),
    ("unigram", "bert", {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}, ([2], [3]), ([2], [3], [3])),
]


@pytest.mark.parametrize("model_type, preset, roles, around_one, around_two", PRESETS)
def test_presets(tmp_path, corpus, model_type, preset, roles, around_one, around_two):
    tokenizer = train(tmp_path, corpus, vocab_size=700, model_type=model_type, preset=preset)
    found = {role: getattr(tokenizer.special, role) for role in ("bos", "eos", "pad", "unk", "cls", "sep", "mask")}
    assert {role: token_id for role, token_id in found.items() if token_id is not None} == roles
    assert tokenizer.eod == roles.get("eos", roles.get("sep"))
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    first, second = (library.encode(text, add_special_tokens=False).ids for text in ("quick fox", "brown"))
    before, after = around_one
    assert library.encode("quick fox").ids == [*before, *first, *after]
    before, between, after = around_two
    assert library.encode("quick fox", "brown").ids == [*before, *first, *between, *second, *after]
    declared = json.loads((tmp_path / "special_tokens_map.json").read_text())
    assert {role: library.token_to_id(declared[f"{role}_token"]) for role in roles} == roles


def test_sentinels_have_the_highest_ids_as_in_t5(tmp_path, corpus):
    tokenizer = train(tmp_path, corpus, vocab_size=370, model_type="unigram", preset="t5")
    assert tokenizer.vocab_size == 370
    assert tokenizer.special.sentinels == tuple(range(369, 269, -1))
    assert tokenizer.encode("<extra_id_0><extra_id_99>") == [369, 270, 1]
    declared = json.loads((tmp_path / "special_tokens_map.json").read_text())["additional_special_tokens"]
    assert (declared[0], declared[99], len(declared)) == ("<extra_id_0>", "<extra_id_99>", 100)


def test_sentences_may_have_two_types(tmp_path, corpus):
    train(tmp_path, corpus, vocab_size=600, model_type="wordpiece")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    encoding = library.encode("quick", "fox")
    assert encoding.type_ids == [0] * encoding.ids.index(3) + [0] + [1] * (
        len(encoding.ids) - encoding.ids.index(3) - 1
    )


@pytest.mark.parametrize("model_type", ["bpe", "unigram", "wordpiece"])
def test_the_same_text_gives_the_same_files_in_whatever_form_it_comes(tmp_path, model_type):
    (tmp_path / "plain").mkdir()
    (tmp_path / "packed").mkdir()
    write_jsonl(tmp_path / "plain" / "a.jsonl", MULTILINGUAL[:5])
    write_jsonl(tmp_path / "plain" / "b.json", MULTILINGUAL[5:] * 2)
    for path in (tmp_path / "plain").iterdir():
        (tmp_path / "packed" / (path.name + ".gz")).write_bytes(gzip.compress(path.read_bytes()))
    for name, source in (("one", "plain"), ("two", "packed"), ("three", "plain")):
        train(tmp_path / name, tmp_path / source, vocab_size=500, model_type=model_type)
    for path in (tmp_path / "one").iterdir():
        assert (
            path.read_bytes()
            == (tmp_path / "two" / path.name).read_bytes()
            == (tmp_path / "three" / path.name).read_bytes()
        )


def test_too_little_text_is_warned_of(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logger, "propagate", True)
    tokenizer = train(tmp_path, write_jsonl(tmp_path / "x.jsonl", ["ab ab"]), vocab_size=1000)
    assert tokenizer.vocab_size == 258
    assert any("has 258 tokens instead of 1000" in message for message in caplog.messages)


@pytest.mark.parametrize(
    "fields, message",
    [
        (
            {"special_tokens": ("<a>",), "preset": "t5"},
            "from --preset or from --special-tokens; given t5 and <a>: keep one",
        ),
        ({"special_tokens": ("<a>", "<a>")}, "--special-tokens must differ from one another; given <a> <a>"),
        ({"model_type": "words"}, "--model-type must name a file of .*'words'; choose from: bpe, unigram, wordpiece"),
        ({"cased": True}, "--cased has no effect with --model-type bpe: leave it out"),
        ({"model_type": "unigram", "min_frequency": 3}, "--min-frequency has no effect with --model-type unigram"),
        ({"model_type": "wordpiece", "character_coverage": 0.99}, "--character-coverage has no effect with"),
        ({"min_frequency": -1}, "--min-frequency must be at least 1; given -1"),
        ({"model_type": "unigram", "character_coverage": 1.5}, "--character-coverage must be 0.9 to 1; given 1.5"),
        ({"model_type": "unigram", "preset": "gpt2"}, "--model-type unigram needs a token for unknown characters"),
        (
            {"model_type": "wordpiece", "special_tokens": ("<a>",)},
            "--model-type wordpiece needs a token for unknown words",
        ),
        ({"vocab_size": 256}, "--vocab-size must be at least 257: 256 bytes and 1 special tokens; given 256"),
        ({"vocab_size": 260, "preset": "roberta"}, "--vocab-size must be at least 261: 256 bytes and 5 special"),
        ({"vocab_size": 20, "model_type": "wordpiece"}, "must hold every character of the text, at the beginning"),
        (
            {"vocab_size": 120, "model_type": "unigram"},
            "must hold every character of the text; given 20 without sentinels",
        ),
        (
            {"vocab_size": 90, "model_type": "unigram"},
            "--vocab-size must leave room beside the 103 special tokens; given 90",
        ),
    ],
)
def test_flags_that_cannot_be_honoured(tmp_path, corpus, fields, message):
    with pytest.raises(ConfigError, match=message):
        train(tmp_path / "out", corpus, **fields)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("model_type", ["bpe", "unigram", "wordpiece"])
@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.jsonl", b'{"text": "a"}\n{', "x.jsonl:2: malformed JSON.*mend it"),
        ("x.jsonl", b"", "--input must hold text to train on"),
    ],
)
def test_unusable_text_leaves_no_tokenizer(tmp_path, model_type, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        train(tmp_path / "out", tmp_path / name, model_type=model_type)
    assert not (tmp_path / "out").exists()

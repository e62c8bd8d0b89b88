import os

import pytest

from megalite.data.preprocess.options import HARMLESS, REFUSED, PreprocessOptions, available_cores, parse_options
from megalite.data.tokenizers import TokenizerOptions
from megalite.errors import ConfigError
from megalite.log import logger

BASE = ["--input", "a.jsonl", "--output-prefix", "out"]


def test_the_flags_of_megatron():
    arguments = (
        "--input a.jsonl b --json-keys text title --output-prefix out --append-eod --workers 3 --log-interval 7 "
        "--split-sentences --keep-newlines "
        "--tokenizer-type GPT2BPETokenizer --vocab_file v.json --merge-file m.txt"
    )
    assert parse_options(arguments.split()) == PreprocessOptions(
        input=("a.jsonl", "b"),
        output_prefix="out",
        json_keys=("text", "title"),
        append_eod=True,
        split_sentences=True,
        keep_newlines=True,
        workers=3,
        log_interval=7,
        tokenizer=TokenizerOptions(tokenizer_type="GPT2BPETokenizer", vocab_file="v.json", merge_file="m.txt"),
    )


def test_defaults_suffice():
    options = parse_options(BASE)
    assert (options.json_keys, options.append_eod, options.skip_invalid) == (("text",), False, False)
    assert options.workers == available_cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("flag", sorted(REFUSED))
@pytest.mark.parametrize("spelling", [lambda flag: flag, lambda flag: "--" + flag[2:].replace("-", "_")])
def test_what_cannot_be_honoured_is_refused_by_name(flag, spelling):
    with pytest.raises(ConfigError, match=f"{flag} cannot be honoured: .*: leave"):
        parse_options([*BASE, spelling(flag)])


@pytest.mark.parametrize(
    "given",
    [
        ["--partitions", "4"],
        ["--partitions=4"],
        ["--lang", "english"],
        ["--keep-sequential-samples"],
        ["--dataset_impl", "mmap"],
    ],
)
def test_what_changes_nothing_is_accepted_and_named(given, caplog):
    with caplog.at_level("INFO", "megalite"):
        assert parse_options([*given, *BASE]) == parse_options(BASE)
    flag = given[0].partition("=")[0].replace("_", "-")
    assert caplog.messages == [f"{flag} changes nothing: {HARMLESS[flag]}"]


def test_an_unknown_flag_is_an_error(capsys):
    with pytest.raises(SystemExit) as exit_:
        parse_options([*BASE, "--append-eos"])
    assert exit_.value.code == 2
    assert "append-eod" in capsys.readouterr().err, "the closest flag is named"

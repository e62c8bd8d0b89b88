import json

import pytest

from megalite.config import DataConfig
from megalite.data.blend import Blend
from megalite.data.sources import Sources, find_sources, validation_sets
from megalite.errors import ConfigError

AB = Blend(("a", "b"), (1.0, 2.0))


def find(**data):
    return find_sources(DataConfig(**data))


def test_one_list_serves_all_splits():
    assert find(data_path=("1", "a", "2", "b"), split="9,1") == Sources(AB, AB, AB, True)


def test_the_list_may_stand_in_a_file(tmp_path):
    (tmp_path / "blend.txt").write_text("1 a\n\n  2\tb\n")
    assert find(data_args_path=str(tmp_path / "blend.txt"), split="9,1") == Sources(AB, AB, AB, True)


def test_each_split_may_have_its_own():
    found = find(train_data_path=("1", "a", "2", "b"), test_data_path=("c",))
    assert found == Sources(AB, None, Blend(("c",), None), False)


@pytest.mark.parametrize("train", ["1 a 2 b", ["1", "a", "2", "b"], [1, "a", 2.0, "b"]])
def test_so_may_they_in_a_file(tmp_path, train):
    path = tmp_path / "splits.json"
    path.write_text(json.dumps({"train": train, "valid": "c d", "test": None}))
    assert find(per_split_data_args_path=str(path)) == Sources(AB, Blend(("c", "d"), None), None, False)


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "must be JSON; .*: correct the file"),
        ("[]", "must be a JSON object with the keys train, valid, test; given list"),
        ('{"train": "a", "validation": "b"}', r"the keys train, valid, test; given \['train', 'validation'\]"),
        ('{"train": 3}', "train of .*splits.json must be a text, or a list of prefixes and weights; given 3"),
        ('{"train": [["a"]]}', "train of .*splits.json must be a text, or a list of prefixes"),
        ('{"train": "1 a b 2"}', "train of .*splits.json must be prefixes only, or WEIGHT PREFIX"),
        (" ", "--per-split-data-args-path must name a file that lists corpora; .* is empty"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    (tmp_path / "splits.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        find(per_split_data_args_path=str(tmp_path / "splits.json"))


@pytest.mark.parametrize("flag", ["data_args_path", "per_split_data_args_path"])
def test_missing_files_are_refused(tmp_path, flag):
    with pytest.raises(
        ConfigError, match=f"--{flag.replace('_', '-')} must name a text file; .*nowhere cannot be read"
    ):
        find(**{flag: str(tmp_path / "nowhere")})


@pytest.mark.parametrize(
    "data, given",
    [
        ({}, "given none of them"),
        ({"data_path": ("a",), "data_args_path": "f"}, "given data_path and data_args_path"),
        ({"train_data_path": ("a",), "per_split_data_args_path": "f"}, "per_split_data_args_path and train_data_path"),
        ({"per_split_data_args_path": "f", "split": "1"}, "given per_split_data_args_path and split"),
    ],
)
def test_corpora_are_named_in_one_way(data, given):
    with pytest.raises(ConfigError, match=given):
        find(**data)


def sets(valid=Blend(("x/a", "y/b"), None), divided=False, **data):
    return validation_sets(DataConfig(**data), Sources(None, valid, None, divided))


def test_validation_corpora_make_one_set_unless_told_otherwise():
    assert sets() == {"validation": Blend(("x/a", "y/b"), None)}
    assert sets(AB) == {"validation": AB}
    assert sets(None) == {} == sets(None, multiple_validation_sets=True)


def test_several_sets_are_named_by_their_prefixes_or_as_told():
    a, b = Blend(("x/a",), None), Blend(("y/b",), None)
    assert sets(multiple_validation_sets=True) == {"validation a": a, "validation b": b}
    named = sets(multiple_validation_sets=True, validation_set_names=("web", "code"))
    assert named == {"validation web": a, "validation code": b}


@pytest.mark.parametrize(
    "valid, names, given",
    [
        (Blend(("x/a", "y/a"), None), (), "must be 2 different names, .*; given a a"),
        (Blend(("x/a", "y/b"), None), ("web",), "must be 2 different names, .*; given web"),
        (Blend(("x/a",), None), ("web", "code"), "must be 1 different names, .*; given web code"),
    ],
)
def test_names_must_fit(valid, names, given):
    with pytest.raises(ConfigError, match=f"validation_set_names {given}"):
        sets(valid, multiple_validation_sets=True, validation_set_names=names)


@pytest.mark.parametrize("flag", ["multiple_validation_sets", "full_validation"])
def test_weights_of_validation_corpora_need_a_blend(flag):
    with pytest.raises(ConfigError, match=rf"{flag} needs validation corpora without weights; given \(1.0, 2.0\)"):
        sets(AB, **{flag: True})
    assert all(blend.weights is None for blend in sets(AB, divided=True, **{flag: True}).values())

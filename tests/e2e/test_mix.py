"""Data of many kinds met by a whole run: mixes that change, several and full validation sets, rearranged documents."""

import json

import pytest

from megalite.checkpoint.store import open_store
from megalite.errors import ConfigError
from tests.data.corpora import numbered, write_corpus
from tests.e2e.launch import curve, events, flags, trained

OTHER_LAYOUT = {"use_distributed_optimizer": True, "micro_batch_size": 1, "num_workers": 2}


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """Another corpus than the one of all tests: the ids 0 to 99 over and over."""
    documents = [[(7 * k + token) % 100 for token in document] for k, document in enumerate(numbered([40] * 60))]
    return write_corpus(tmp_path_factory.mktemp("second") / "second", documents)


def counts(directory, iteration):
    """Samples consumed of each corpus, as the checkpoint tells."""
    account = open_store(directory / f"iter_{iteration:07d}").meta["data_stream"]
    return {entry["name"].rpartition("/")[2]: entry["consumed"] for entry in account["corpora"] + account["left"]}


def test_a_mix_that_changes_goes_on_at_any_layout(corpus, second, tmp_path, failing):
    """4 steps of one corpus, then of two: stopped and resumed in the new mix as in any other, at two layouts."""
    save = {"save": tmp_path / "first", "save_interval": 4}
    trained(1, flags(data_path=corpus, exit_interval=4, **save))
    (tmp_path / "blend.txt").write_text(f"1 {corpus}\n3 {second}\n")
    fields = {"data_path": None, "data_args_path": tmp_path / "blend.txt", "load": tmp_path / "first"}
    error = failing(ConfigError, flags(**fields))
    assert "a run must go on with the data it began with" in error and "--allow-data-change" in error
    fields["allow_data_change"] = True
    for name, num_processes, layout in (("one", 1, {}), ("two", 2, OTHER_LAYOUT)):
        save = {"save": tmp_path / name, "save_interval": 6, "metrics_file": tmp_path / f"{name}.jsonl"}
        trained(num_processes, flags(**fields, **save, **layout))
    expected = curve(tmp_path / "one.jsonl")
    assert list(expected) == list(range(5, 11))
    assert counts(tmp_path / "one", 6) == counts(tmp_path / "two", 6) == {"corpus_text_document": 36, "second": 12}
    again = {**fields, "load": tmp_path / "two", "ckpt_step": 6, "allow_data_change": False}
    trained(1, flags(**again, metrics_file=tmp_path / "again.jsonl"))
    for name in ("two", "again"):
        for step, values in curve(tmp_path / f"{name}.jsonl").items():
            assert values == pytest.approx(expected[step], rel=1e-4), f"{name}, iteration {step}"


def test_named_and_full_validation(corpus, second, tmp_path):
    """Of a layout whose batches the sets do not fill evenly, beside one process."""
    paths = {"train": corpus, "valid": [second, corpus]}
    (tmp_path / "paths.json").write_text(json.dumps(paths))
    names = {"multiple_validation_sets": True, "validation_set_names": ["plain", "odd"]}
    fields = {"data_path": None, "per_split_data_args_path": tmp_path / "paths.json", "full_validation": True, **names}
    found = {}
    for name, num_processes, layout in (("one", 1, {}), ("two", 2, {"global_batch_size": 12, **OTHER_LAYOUT})):
        metrics = tmp_path / f"{name}.jsonl"
        trained(num_processes, flags(eval_iters=1, skip_train=True, metrics_file=metrics, **fields, **layout))
        found[name] = {event["name"]: event for event in events(metrics, "eval")}
    assert list(found["one"]) == ["validation plain", "validation odd"] == list(found["two"])
    assert found["one"]["validation plain"]["num_tokens"] == 60 * 40 - 1
    for name, event in found["one"].items():
        assert found["two"][name]["num_tokens"] == event["num_tokens"]
        assert found["two"][name]["loss"] == pytest.approx(event["loss"], rel=1e-6)


def test_rearranged_documents_are_the_same_at_any_layout(corpus, tmp_path):
    tokens = {"fim_prefix_token": 97, "fim_middle_token": 98, "fim_suffix_token": 99}
    fields = {"data_path": corpus, "fim_data": True, "fim_rate": 0.9, "train_iters": 3, **tokens}
    for name, num_processes, layout in (("one", 1, {}), ("two", 2, OTHER_LAYOUT)):
        trained(num_processes, flags(metrics_file=tmp_path / f"{name}.jsonl", **fields, **layout))
    trained(1, flags(metrics_file=tmp_path / "plain.jsonl", data_path=corpus, train_iters=3))
    one, two, plain = (curve(tmp_path / f"{name}.jsonl") for name in ("one", "two", "plain"))
    for step, values in one.items():
        assert two[step] == pytest.approx(values, rel=1e-4)
        assert plain[step][0] != pytest.approx(values[0], rel=1e-4)

"""Writing a configuration down and reading it back."""

import typing

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.config import Config
from megalite.config.cli import parse
from megalite.config.dump import differences, flat, summary, to_yaml
from megalite.config.fields import Field, all_fields, assemble
from tests.config.settings import FLAGS, valid

TEXTS = st.one_of(
    st.sampled_from("None|null|yes|1e-3|True|a b|--seed||0x10|2024-01-01|x: y|#|~".split("|")),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
SCALARS = {
    int: st.integers(-(2**70), 2**70),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: TEXTS,
    bool: st.booleans(),
}


def values_of(field: Field) -> st.SearchStrategy:
    if field.choices:
        values = st.sampled_from(field.choices)
    elif field.many:
        values = st.lists(TEXTS, max_size=4).map(tuple)
    elif typing.get_origin(field.type) is tuple:
        values = st.tuples(*(SCALARS[kind] for kind in typing.get_args(field.type)))
    else:
        values = SCALARS[field.type]
    return st.none() | values if field.optional else values


CHANGES = st.lists(st.sampled_from(list(all_fields().values())), max_size=20).flatmap(
    lambda fields: st.fixed_dictionaries({field.name: values_of(field) for field in fields})
)


@settings(max_examples=40, deadline=None)
@given(changes=CHANGES)
def test_a_configuration_survives_being_written_and_read(changes, tmp_path_factory):
    config = valid(**changes)
    path = tmp_path_factory.getbasetemp() / "round_trip.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert parse(["--config", str(path)]) == config


def test_the_dump_is_plain_yaml_by_group():
    content = yaml.safe_load(to_yaml(valid(save="out")))
    assert list(content) == ["model", "parallel", "training", "optimizer", "data", "checkpoint", "logging"]
    assert content["optimizer"]["lr"] == 0.001
    assert content["data"]["data_path"] == ["corpus"]
    assert content["checkpoint"]["load"] is None


def test_the_summary_shows_what_differs_from_the_defaults():
    assert summary(valid(data_path=("0.5", "a", "0.5", "b"), overlap_grad_reduce=False)) == (
        "configuration (what differs from the defaults):\n"
        "  model      num_layers 4, hidden_size 48, num_attention_heads 12, seq_length 32\n"
        "  parallel   overlap_grad_reduce False\n"
        "  training   micro_batch_size 2, global_batch_size 8, train_iters 10\n"
        "  optimizer  lr 0.001\n"
        "  data       data_path 0.5 a 0.5 b"
    )


def test_differences_name_old_and_new_values():
    assert differences(valid(), valid(lr=0.5, save="out")) == ["lr: 0.001 -> 0.5", "save: None -> out"]
    assert differences(valid(), parse(FLAGS)) == []


def test_the_flat_view_holds_every_field():
    assert assemble(flat(valid())) == valid()
    assert isinstance(assemble(flat(valid())), Config)

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalite.errors import ConfigError
from megalite.topology.layout import parse_layout


@pytest.mark.parametrize(
    "layout, num_layers, pp, stages",
    [
        ("EtL", 1, 1, ["EtL"]),
        ("Et|tL", 2, 2, ["Et", "tL"]),
        ("Et*3|(tt|)*2,L", 7, 4, ["Ettt", "tt", "tt", "L"]),
        ("E , t | t,,L", 2, 2, ["Et", "tL"]),
        ("E|t*2||L", 2, 4, ["E", "tt", "", "L"]),
        ("E|*2tL", 1, 3, ["E", "", "tL"]),
        ("E((t|)*2t)*2|L", 6, 3, ["Et", "t", "tt", "t", "t", "L"]),
        ("(E)t(L)*1", 1, 1, ["EtL"]),
        ("Et*12|t*10L", 22, 1, ["E" + "t" * 12, "t" * 10 + "L"]),
    ],
)
def test_layouts(layout, num_layers, pp, stages):
    assert parse_layout(layout, num_layers, pp) == stages


def test_megatron_s_example():
    """``Et*3|(tt|)*29t|L`` with its m as a t: 62 layers in 32 stages."""
    stages = parse_layout("Et*3|(tt|)*29t|L", 62, 16)
    assert stages == ["Ettt"] + ["tt"] * 29 + ["t", "L"]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
@settings(deadline=None)
def test_layouts_written_out_and_with_repeats(counts):
    stages = "|".join("t" * count for count in counts)
    repeated = "|".join(f"t*{count}" if count else "" for count in counts)
    expected = f"E{stages}L".split("|")
    assert parse_layout(f"E{stages}L", sum(counts), 1) == parse_layout(f"E{repeated}L", sum(counts), 1) == expected


@pytest.mark.parametrize(
    "layout, character, message",
    [
        ("", 1, "E, the embedding, must appear once; it appears 0 times"),
        ("ttL", 4, "E, the embedding, must appear once; it appears 0 times"),
        ("EtEtL", 3, "E, the embedding, must appear once; it appears 2 times"),
        ("E*2tt|L", 1, "E, the embedding, must appear once; it appears 2 times"),
        ("Ett", 4, "L, the head, must appear once; it appears 0 times"),
        ("EtL|tL", 6, "L, the head, must appear once; it appears 2 times"),
        ("tE|tL", 1, "the first stage must begin with E"),
        ("|EttL", 1, "the first stage must begin with E"),
        ("Et|Lt", 5, "the last stage must end with L"),
        ("Ett|L|", 6, "the last stage must end with L"),
        ("Et|L", 4, "the layout must hold all 2 layers .t.; it holds 1"),
        ("Etttt|L", 4, "the layout must hold all 2 layers .t.; it holds 4"),
        ("Et|t|L", 7, "the number of stages must be a multiple of the pipeline size .2.; this layout has 3"),
        ("Ett|mL", 5, "m, a multi-token-prediction layer, is not supported: leave it out"),
        ("E(tt|L", 2, "'.' must be closed by '.'"),
        ("E(t(t)|L", 2, "'.' must be closed by '.'"),
        ("Ett)|L", 4, "'.' must close a '.'; there is none open"),
        ("*2EttL", 1, "'.' must follow a letter"),
        ("Et*|L", 4, "'.' must be followed by a number of at least 1"),
        ("Et*0|L", 4, "'.' must be followed by a number of at least 1"),
        ("Et*2*2|L", 5, "'.' must follow a letter"),
        ("E2t|L", 2, "a layout is made of E, t, L, .* given '2'"),
        ("eTT|L", 1, "a layout is made of E, t, L, .* given 'e'"),
        ("Et*999999999|L", 2, "a layout must not grow beyond 100000 symbols"),
        ("E((t*99)*99)*99|L", 2, "a layout must not grow beyond 100000 symbols"),
    ],
)
def test_every_rule_shows_the_place(layout, character, message):
    with pytest.raises(
        ConfigError, match=rf"^--pipeline-model-parallel-layout, character {character}: {message}"
    ) as caught:
        parse_layout(layout, num_layers=2, pp=2)
    shown, arrow = str(caught.value).splitlines()[-2:]
    assert shown == "  " + layout
    assert arrow == "  " + " " * (character - 1) + "^"


def test_a_layout_over_several_lines_is_shown_on_one():
    with pytest.raises(ConfigError) as caught:
        parse_layout("Et|\n\ttx", num_layers=2, pp=2)
    assert str(caught.value).splitlines()[1:] == ["  Et|  tx", "        ^"]

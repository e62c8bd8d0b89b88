import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.preprocess.sentences import split_sentences

CASES = {
    "full stops": ("One two. Three! Four? Five… Six", ["One two.", "Three!", "Four?", "Five…", "Six"]),
    "small letter": ("It cost 5 p. a piece. e.g. this.", ["It cost 5 p. a piece. e.g. this."]),
    "abbreviations": ("Dr. Smith met Mrs. Jones. They left.", ["Dr. Smith met Mrs. Jones.", "They left."]),
    "before numbers": ("See Fig. 3 and No. 7. Oh no. We left.", ["See Fig. 3 and No. 7.", "Oh no.", "We left."]),
    "initials": ("J. R. Smith saw the U.S. Army. It left.", ["J. R. Smith saw the U.S. Army.", "It left."]),
    "decimals": ("It is 3.14. Or 2.72?", ["It is 3.14.", "Or 2.72?"]),
    "quotes": (
        'He said: "Stop." Then (he left.) "Now?" Yes.',
        ['He said: "Stop."', "Then (he left.)", '"Now?"', "Yes."],
    ),
    "several marks": ("What?! No... Yes.", ["What?!", "No...", "Yes."]),
    "line breaks": ("One\ntwo.\nThree\n", ["One\ntwo.", "Three"]),
    "paragraphs": ("Title\n\nText here\n  \nmore", ["Title", "Text here", "more"]),
    "enumeration": ("1. First\n2. Second. Third", ["1. First\n2. Second.", "Third"]),
    "a number ends": ("It was 1999. Then came 2000. End", ["It was 1999.", "Then came 2000.", "End"]),
    "Chinese": ("你好。世界！「好。」再见", ["你好。", "世界！", "「好。」", "再见"]),
    "Hindi": ("यह एक है। वह दो है।", ["यह एक है।", "वह दो है।"]),
    "CRLF": ("One.\r\n\r\nTwo", ["One.", "Two"]),
    "nothing": (" \n\n\t ", []),
    "empty": ("", []),
}


@pytest.mark.parametrize("case", CASES)
def test_sentences(case):
    text, expected = CASES[case]
    assert split_sentences(text) == expected


def test_line_breaks_stay_on_request():
    text = "One. Two.\nThree.\r\n\r\n  Four.  "
    assert split_sentences(text, keep_breaks=True) == ["One.", "Two.\n", "Three.\r\n\r\n  ", "Four."]


@given(st.text(alphabet="aB1 .!?\n\t\"。」\u2028", max_size=60), st.booleans())
def test_nothing_but_white_space_is_lost_and_splitting_again_changes_nothing(text, keep_breaks):
    sentences = split_sentences(text, keep_breaks)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence.strip() for sentence in sentences)


def test_time_is_linear_in_the_length_of_a_text():
    assert len(split_sentences("A b c. " * 200_000)) == 200_000
    assert split_sentences("." * 1_000_000) == ["." * 1_000_000]
    assert split_sentences("\n" * 1_000_000) == []

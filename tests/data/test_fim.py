import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.fim import Draws, FimRules, fill_in_the_middle

PREFIX, MIDDLE, SUFFIX, EOD, BORDER = 0x110001, 0x110002, 0x110003, 0x110004, 0x110005
SENTINELS = {PREFIX: "P", MIDDLE: "M", SUFFIX: "S", EOD: "E", BORDER: "B"}


class Characters:
    """A token is a character."""

    def encode(self, text):
        return [ord(character) for character in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


def rules(rate=1.0, spm_rate=0.0, **fields):
    return FimRules(rate, spm_rate, PREFIX, MIDDLE, SUFFIX, EOD, **fields)


def ids(text):
    """Text to ids, with capitals for the special tokens."""
    special = {name: token for token, name in SENTINELS.items()}
    return np.array([special.get(character, ord(character)) for character in text], np.int64)


def shown(tokens):
    return "".join(SENTINELS.get(token) or chr(token) for token in tokens.tolist())


def rearranged(text, chosen, sample=0, key="k"):
    """With room behind the text, a document of its own, for what the special tokens push out."""
    whole = text.removesuffix("E") + "E" + "-" * 50
    return shown(fill_in_the_middle(ids(whole), chosen, Characters(), Draws(key, sample)))


def restored(piece):
    """The text that a rearranged piece was made of, by the definition of the two forms; and its form."""
    if piece.startswith("PS"):
        suffix, _, rest = piece[2:].partition("M")
        return rest + suffix, "spm"
    prefix, _, rest = piece[1:].partition("S")
    suffix, _, middle = rest.partition("M")
    return prefix + middle + suffix, "psm"


@given(st.text("abcdef", min_size=1, max_size=20), st.integers(0, 2**63), st.sampled_from([0.0, 1.0]))
def test_the_text_comes_back_from_either_form(text, sample, spm_rate):
    pieces = rearranged(text, rules(spm_rate=spm_rate), sample).split("E")
    whole, form = restored(pieces[0])
    # A text whose prefix is empty and whose suffix comes first looks like SPM in PSM too: P S suffix M middle.
    assert whole == text and (form == "spm" or spm_rate == 0)


def test_both_forms_by_hand():
    """The document is chosen by the first draw and cut by the next two."""
    draws = Draws("k", 7)
    assert draws.happens(1.0)
    first, second = sorted(draws.below(7) for _ in range(2))
    prefix, middle, suffix = "abcdef"[:first], "abcdef"[first:second], "abcdef"[second:]
    assert rearranged("abcdef", rules(), 7).startswith(f"P{prefix}S{suffix}M{middle}E")
    assert rearranged("abcdef", rules(spm_rate=1.0), 7).startswith(f"PS{suffix}M{prefix}{middle}E")


def test_draws_are_a_function_of_key_and_sample():
    def words(key, sample):
        draws = Draws(key, sample)
        return [draws.below(1 << 40) for _ in range(20)]  # more than a block of four words

    assert words("a", 3) == words("a", 3)
    everything = [word for key in "ab" for sample in (0, 1, 2**40, 2**63 - 1) for word in words(key, sample)]
    assert len(set(everything)) == len(everything)


def test_draws_are_uniform():
    draws = [Draws("k", sample) for sample in range(4000)]
    assert abs(sum(draw.happens(0.3) for draw in draws) / 4000 - 0.3) < 0.03
    counts = np.bincount([draw.below(5) for draw in draws], minlength=5)
    assert len(counts) == 5 and abs(counts - 800).max() < 120
    assert not Draws("k", 0).happens(0.0) and all(Draws("k", sample).happens(1.0) for sample in range(100))


def test_documents_stay_apart_and_keep_their_ends():
    out = rearranged("EabcEEdefE", rules(), 1)
    documents = out.split("E")
    assert documents[0] == "" and documents[2] == "" and len(documents) >= 5
    assert restored(documents[1])[0] == "abc" and restored(documents[3])[0] == "def"


def test_the_rate_decides_for_each_document():
    text = "".join(f"doc{k}E" for k in range(10)) + "-" * 100
    out = fill_in_the_middle(ids(text), rules(rate=0.5), Characters(), Draws("k", 0))
    changed = [piece.startswith("P") for piece in shown(out).split("E")[:10]]
    assert 0 < sum(changed) < 10
    untouched = fill_in_the_middle(ids(text), rules(rate=0.0), Characters(), Draws("k", 0))
    assert untouched.tolist() == ids(text).tolist()


def test_fragments_are_rearranged_within_their_borders():
    chosen = rules(border=BORDER, fragment_rate=1.0)
    out = rearranged("abBcdeBfE", chosen, 2).split("E")[0].split("B")
    assert [restored(piece)[0] for piece in out] == ["ab", "cde", "f"]
    assert rearranged("abBcdE", rules(border=BORDER, fragment_rate=0.0)).startswith("abBcdE")
    assert rearranged("abBcdE", rules(rate=0.0, border=BORDER, fragment_rate=1.0)).startswith("abBcdE")
    assert restored(rearranged("abcd", chosen).split("E")[0])[0] == "abcd", "without a border as a whole"


def test_some_texts_are_left_alone():
    assert rearranged("# skip meE", rules(no_prefix="# skip")).startswith("# skip meE")
    assert rearranged("ab\ufffdcE", rules()).startswith("ab\ufffdcE"), "a character cut in two"
    assert rearranged("E", rules()).startswith("E")


@pytest.mark.parametrize("length", [1, 2, 3, 10])
def test_the_length_is_never_exceeded(length):
    text = ids("abcdefghij"[:length])
    out = fill_in_the_middle(text, rules(), Characters(), Draws("k", 0))
    assert len(out) == length and shown(out)[0] == "P"


def test_text_that_becomes_shorter_is_not_filled_up():
    class Merging(Characters):
        """Any text is one token."""

        def encode(self, text):
            return [ord(text[0])] if text else []

    out = fill_in_the_middle(ids("abcdefghij"), rules(), Merging(), Draws("k", 1))
    assert len(out) == 6

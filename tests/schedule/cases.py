"""What the schedule tests run over."""

from hypothesis import strategies as st

BUILDERS = ("gpipe", "interleaved", "forward_only", "one_f_one_b")


@st.composite
def requests(draw, max_pp=8, max_virtual=4, max_microbatches=17):
    """(builder, pp, virtual, num_microbatches) that the builder accepts."""
    name = draw(st.sampled_from(BUILDERS))
    virtual = 1 if name == "one_f_one_b" else draw(st.integers(1, max_virtual))
    return name, draw(st.integers(1, max_pp)), virtual, draw(st.integers(1, max_microbatches))

import multiprocessing
import threading

import numpy as np
import pytest

from megalite.data.preprocess.arrays import receive, send


@pytest.mark.parametrize(
    "array",
    [
        np.arange(3_000_000, dtype=np.uint32),  # many times what a pipe holds
        np.zeros(0, np.int64),
        np.arange(24, dtype=np.uint16).reshape(4, 6)[:, ::2],
        np.arange(6, dtype=">i4"),
    ],
    ids=["large", "empty", "not contiguous", "big-endian"],
)
def test_arrays_arrive_as_they_were_sent_in_order(array):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    value = {"array": array, "again": [array, "text"], "number": 7}
    thread = threading.Thread(target=lambda: [send(theirs, value), send(theirs, "next")])
    thread.start()
    received = receive(ours)
    assert received["number"] == 7 and received["again"][1] == "text"
    for copy in (received["array"], received["again"][0]):
        assert copy.dtype == array.dtype
        np.testing.assert_array_equal(copy, array)
    received["array"][:1] = 0  # as writable as any array
    assert receive(ours) == "next"
    thread.join()


def test_an_end_in_the_middle_of_an_array_is_an_end():
    ours, theirs = multiprocessing.Pipe(duplex=False)
    theirs.send((b"", [100]))
    theirs.close()
    with pytest.raises(EOFError):
        receive(ours)

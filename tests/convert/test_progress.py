"""Lines of progress: bytes, rate and time left, worked out by hand."""

from megalite.convert.progress import Progress


def test_rate_and_time_left():
    lines, now = [], [100.0]
    progress = Progress(clock=lambda: now[0], show=lines.append)
    progress.begin(80_000_000)
    now[0] = 101.0
    progress.add(10_000_000)
    assert lines == []  # Too soon for a line.
    now[0] = 104.0
    progress.add(10_000_000)
    now[0] = 108.0
    progress.add(60_000_000)
    progress.finish()
    assert lines == [
        "converted 20.0 of 80.0 MB, 5.0 MB/s, 12 s left",
        "converted 80.0 of 80.0 MB, 10.0 MB/s, 8.0 s",
        "converted 80.0 of 80.0 MB, 10.0 MB/s, 8.0 s",
    ]

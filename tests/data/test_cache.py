import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from megalite.data.cache import IndexCache
from megalite.errors import DataError

KEY = {"kind": "test", "size": 5}


def five():
    return {"numbers": np.arange(5), "squares": np.arange(5) ** 2}


def forbidden():
    raise AssertionError("must not be built")


def entries(directory):
    return sorted(name for name in os.listdir(directory))


def test_builds_once_and_maps_afterwards(tmp_path):
    cache = IndexCache(tmp_path / "cache")
    first = cache.get("test", KEY, five)
    second = cache.get("test", KEY, forbidden)
    for arrays in (first, second):
        assert arrays["numbers"].tolist() == [0, 1, 2, 3, 4] and arrays["squares"].tolist() == [0, 1, 4, 9, 16]
        assert isinstance(arrays["numbers"], np.memmap)
    (entry,) = entries(tmp_path / "cache")
    assert entry.startswith("test-") and entries(tmp_path / "cache" / entry) == [
        "key.json",
        "numbers.npy",
        "squares.npy",
    ]
    assert json.loads((tmp_path / "cache" / entry / "key.json").read_text()) == {"format": 1, **KEY}


def test_another_key_is_another_entry(tmp_path):
    cache = IndexCache(tmp_path)
    cache.get("test", KEY, five).prepare()
    assert cache.get("test", {**KEY, "size": 1}, lambda: {"numbers": np.arange(1)})["numbers"].tolist() == [0]
    assert len(entries(tmp_path)) == 2


def test_a_directory_that_takes_no_files_costs_only_the_cache(tmp_path, caplog):
    caplog.set_level(logging.INFO, "megalite")
    (tmp_path / "file").write_text("")
    arrays = IndexCache(tmp_path / "file" / "cache").get("test", KEY, five)
    assert arrays["squares"].tolist() == [0, 1, 4, 9, 16]
    assert "takes no files (Not a directory): the indices stay in memory" in caplog.text


def test_a_full_disk_costs_only_the_cache(tmp_path, monkeypatch):
    def full(file, array):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert IndexCache(tmp_path).get("test", KEY, five)["numbers"].tolist() == [0, 1, 2, 3, 4]
    assert entries(tmp_path) == []


def test_a_failed_build_is_the_callers_and_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match="unusable"):
        IndexCache(tmp_path).get("test", KEY, lambda: (_ for _ in ()).throw(DataError("unusable"))).prepare()
    assert entries(tmp_path) == []


def test_damage_is_named(tmp_path):
    IndexCache(tmp_path).get("test", KEY, five).prepare()
    (entry,) = tmp_path.iterdir()
    (entry / "numbers.npy").write_bytes(b"")
    with pytest.raises(DataError, match=f"{entry.name} must be an index cache .* remove that directory"):
        IndexCache(tmp_path).get("test", KEY, forbidden)["squares"]


def read_cold(directory):
    """One rank of a cold start: reports whether it built, and what it read."""
    built = []

    def build():
        built.append(True)
        time.sleep(0.01)
        return {"numbers": np.arange(10_000)}

    arrays = IndexCache(directory).get("test", KEY, build)
    total = int(arrays["numbers"].sum())
    return len(built), total


def test_cold_starts_build_once_and_read_whole(tmp_path):
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as pool:
        for start in range(20):
            results = list(pool.map(read_cold, [str(tmp_path / str(start))] * 4))
            assert sum(built for built, _ in results) == 1
            assert {total for _, total in results} == {10_000 * 9_999 // 2}
            assert len(entries(tmp_path / str(start))) == 1


KILLED = """
import os, signal, sys
import numpy as np
from megalite.data import cache
real = np.save
def save_and_die(file, array):
    real(file, array)
    os.kill(os.getpid(), signal.SIGKILL)
np.save = save_and_die
cache.IndexCache(sys.argv[1]).get("test", {"kind": "test", "size": 5}, lambda: {"numbers": np.zeros(3)}).prepare()
"""


def test_a_killed_builder_blocks_nobody_and_leaves_nothing_half(tmp_path):
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)]).returncode == -signal.SIGKILL
    assert any(".partial" in name for name in entries(tmp_path))
    assert IndexCache(tmp_path).get("test", KEY, five)["numbers"].tolist() == [0, 1, 2, 3, 4]
    assert len(entries(tmp_path)) == 1


def test_where_locks_do_not_reach_other_hosts_the_first_one_wins(tmp_path, monkeypatch):
    monkeypatch.setattr("megalite.data.cache.locked", lambda path: contextlib.nullcontext())

    def build_while_another_host_publishes():
        monkeypatch.setattr("socket.gethostname", lambda: "other")
        IndexCache(tmp_path).get("test", KEY, five).prepare()
        monkeypatch.undo()
        return {"numbers": np.zeros(1)}

    arrays = IndexCache(tmp_path).get("test", KEY, build_while_another_host_publishes)
    assert arrays["numbers"].tolist() == [0, 1, 2, 3, 4] and len(entries(tmp_path)) == 1


def test_nothing_is_opened_before_it_is_asked_for(tmp_path, monkeypatch):
    arrays = IndexCache(tmp_path).get("test", KEY, five)
    assert entries(tmp_path) == []
    arrays.prepare()
    monkeypatch.setattr("megalite.data.cache._load", forbidden)
    IndexCache(tmp_path).get("test", KEY, forbidden).prepare()

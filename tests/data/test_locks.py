import os
import subprocess
import sys
import threading

import pytest

from megalite.data.locks import locked, open_locked


def test_a_held_lock_is_refused_at_once_and_free_after_close(tmp_path):
    path = str(tmp_path / "lock")
    held = open_locked(path, wait=False)
    with pytest.raises(BlockingIOError):
        open_locked(path, wait=False)
    os.close(held)
    os.close(open_locked(path, wait=False))


def test_the_lock_of_a_dead_process_is_free(tmp_path):
    path = str(tmp_path / "lock")
    code = "import os, sys; from megalite.data.locks import open_locked; open_locked(sys.argv[1], False); os.abort()"
    assert subprocess.run([sys.executable, "-c", code, path]).returncode < 0
    assert os.path.exists(path)
    os.close(open_locked(path, wait=False))


def test_who_waited_for_a_file_that_was_removed_locks_the_new_one(tmp_path):
    path = str(tmp_path / "lock")
    inside = []

    def enter():
        with locked(path):
            inside.append(1)
            assert len(inside) == 1
            inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(8)]
    with locked(path):
        inside.append(0)
        for thread in threads:
            thread.start()
        inside.pop()
    for thread in threads:
        thread.join()
    assert not os.path.exists(path)

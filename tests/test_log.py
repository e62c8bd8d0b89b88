import json
import os
import subprocess
import sys
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRELUDE = "from megalite.errors import *; from megalite.log import echo, logger, run_main, setup_logging\n"


def run(code: str, **environment: str) -> tuple[subprocess.CompletedProcess, float]:
    """Run ``code`` in a fresh process; the result and the seconds it took."""
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": ROOT, **environment}
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, env=environment)
    return done, time.monotonic() - started


def raising(error: str, same_on_every_rank: bool = False) -> str:
    """A program that raises ``error``."""
    mark = "    error.same_on_every_rank = True\n" if same_on_every_rank else ""
    return f"def main():\n    error = {error}\n{mark}    raise error\nrun_main(main)"


@pytest.mark.parametrize("returned, status", [("None", 0), ("0", 0), ("3", 3)])
def test_the_bodys_status_is_the_programs(returned, status):
    done, _ = run(f"run_main(lambda: {returned})")
    assert (done.returncode, done.stderr) == (status, "")


def test_an_error_of_the_user_is_one_message_and_status_2():
    done, _ = run(raising("ConfigError('a must hold.\\nb too.')"))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "ConfigError: a must hold.\nb too.\n")


def test_a_bug_shows_its_traceback_and_status_1():
    done, seconds = run(raising("ValueError('broken')"), RANK="1")
    assert done.returncode == 1
    assert done.stderr.startswith("[rank 1] Traceback") and done.stderr.endswith("[rank 1] ValueError: broken\n")
    assert seconds < 3, "a rank that has found a bug does not wait for others"


def test_rank_0_shows_the_users_error_at_once_and_tells_torchrun(tmp_path):
    file = tmp_path / "error.json"
    done, seconds = run(raising("DataError('no file')", True), RANK="0", TORCHELASTIC_ERROR_FILE=str(file))
    assert (done.returncode, done.stderr) == (2, "[rank 0] DataError: no file\n")
    assert seconds < 3
    details = json.loads(file.read_text())["message"]
    assert details["extraInfo"]["py_callstack"] == "DataError: no file"
    assert abs(int(details["extraInfo"]["timestamp"]) - time.time()) < 10


def test_other_ranks_give_rank_0_time_to_speak_and_repeat_nothing(tmp_path):
    file = tmp_path / "error.json"
    done, seconds = run(raising("DataError('no file')", True), RANK="1", TORCHELASTIC_ERROR_FILE=str(file))
    assert (done.returncode, done.stderr) == (2, "")
    assert "no file" in file.read_text() and seconds > 3


def test_a_users_error_of_one_rank_is_shown_by_it():
    done, _ = run(raising("DataError('no file here')"), RANK="1")
    assert (done.returncode, done.stderr) == (2, "[rank 1] DataError: no file here\n")


def test_the_loss_of_another_rank_is_reported_late():
    error = "RuntimeError('[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234')"
    done, seconds = run(raising(error), RANK="0")
    assert done.returncode == 1 and seconds > 3
    assert done.stderr.endswith("[rank 0] Another rank is gone or does not answer: look for its failure first.\n")


def test_results_and_the_log_come_from_rank_0_and_warnings_from_all():
    code = "setup_logging(); logger.info('hello'); logger.warning('careful\\nnow'); echo('42')"
    assert run(code)[0].stdout == "hello\nwarning: careful\nnow\n42\n"
    assert run(code, RANK="2")[0].stdout == "[rank 2] warning: careful\n[rank 2] now\n"

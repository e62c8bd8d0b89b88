"""The tool: its grids are kept in golden files and in the documentation.

After a change that is meant, write a golden file anew: ``COLUMNS=120 python tools/show_schedule.py ARGUMENTS > FILE``.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from megalite.errors import ConfigError
from megalite.schedule.show import main

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "schedules"
CASES = {
    "gpipe_pp4_m6.txt": "--schedule gpipe --pp 4 --num-microbatches 6 --actions",
    "1f1b_pp4_m8.txt": "--schedule 1f1b --pp 4 --num-microbatches 8 --actions",
    "interleaved_pp4_v2_m8.txt": "--schedule interleaved --pp 4 --virtual 2 --num-microbatches 8 --actions",
    "interleaved_pp2_v2_m3.txt": "--schedule interleaved --pp 2 --virtual 2 --num-microbatches 3 --actions",
    "forward_only_pp2_v2_m4.txt": "--schedule forward_only --pp 2 --virtual 2 --num-microbatches 4 --actions",
}


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.parametrize("file", CASES)
def test_golden_files(file, capsys):
    main(shlex.split(CASES[file]))
    assert capsys.readouterr().out == (GOLDEN / file).read_text()


def test_every_golden_file_is_compared():
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


def test_grids_in_the_documentation_are_what_the_tool_prints(capsys):
    text = (ROOT / "docs" / "schedules.md").read_text()
    blocks = re.findall(r"```\n\$ python tools/show_schedule.py (.*)\n((?:.*\n)*?)```", text)
    assert len(blocks) >= 4
    for arguments, shown in blocks:
        main(shlex.split(arguments))
        assert capsys.readouterr().out == shown, arguments


def test_figures_by_hand(capsys):
    """Stage 1 takes twice as long: rank 0 works 2 x 3 of 15 units, rank 1 works 12."""
    main("--pp 2 --num-microbatches 2 --forward-cost 1,2 --backward-cost 2,4".split())
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "makespan 15",
        "bubble   0.4000 of the makespan; (p-1)/(vm+p-1) = 0.3333",
        "rank  bubble  peak live activations (stage inputs)",
        "   0  0.6000  2",
        "   1  0.2000  1",
    ]


def test_the_script_writes_a_trace(tmp_path):
    trace = tmp_path / "trace.json"
    command = [
        sys.executable,
        ROOT / "tools" / "show_schedule.py",
        "--pp",
        "2",
        "--num-microbatches",
        "2",
        "--trace",
        trace,
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert result.returncode == 0, result.stderr
    assert f"trace written to {trace}" in result.stdout
    assert len([event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]) == 8


def test_a_request_that_cannot_be_met_is_one_line(tmp_path):
    command = [sys.executable, ROOT / "tools" / "show_schedule.py", "--schedule", "1f1b", "--virtual", "2"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("ScheduleError: 1f1b runs one stage per rank; given 2 virtual stages")
    assert len(result.stderr.splitlines()) == 1


def test_bad_costs_and_trace_files_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match="a cost must be a number, or numbers with commas between them, .* given '1,x'"
    ):
        main(["--forward-cost", "1,x"])
    with pytest.raises(ConfigError, match="--trace must name a file that can be written; .*no_such_folder"):
        main(["--trace", str(tmp_path / "no_such_folder" / "trace.json")])

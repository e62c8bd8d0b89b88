"""The quickstart script itself, with less text and few steps."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "quickstart" / "run.sh"


def test_it_collects_trains_resumes_and_evaluates(tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ITERS": "4", "MEGABYTES": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", SCRIPT, tmp_path], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall("^=== (\\S+)", done.stdout, re.MULTILINE) == ["1/5", "2/5", "3/5", "4/5", "5/5", "Done."]
    assert f"{tmp_path}/tokenizer/tokenizer.json: 8192 tokens" in done.stdout
    assert "layout: tensor 2 x pipeline 2 (virtual stages 1) x data 1" in done.stdout
    assert "layout: tensor 1 x pipeline 2 (virtual stages 2) x data 2" in done.stdout
    assert f"loading iteration 2 from {tmp_path}/checkpoints/iter_0000002" in done.stdout
    evaluated = re.findall(
        r"validation loss at iteration (\d) \| lm loss value: (\S+) \| lm loss PPL: (\S+) \| bits per byte: (\S+) \|",
        done.stdout,
    )
    assert [int(iteration) for iteration, *_ in evaluated] == [2, 4]
    for _, loss, perplexity, bits in evaluated:
        assert math.isclose(math.log(float(perplexity)), float(loss), rel_tol=1e-5)
        assert 3 < float(loss) / math.log(2) / float(bits) < 6, "a token of Python is three to six bytes"
    assert float(evaluated[1][1]) < float(evaluated[0][1]) < math.log(8192)
    assert (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "4\n"

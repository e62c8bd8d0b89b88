"""Running the programs: as processes started by a command, or in forked workers where the start is not under test."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from megalite.train.pretrain import pretrain
from tests.harness import run_world

ROOT = Path(__file__).parent.parent.parent
PROGRAM = str(ROOT / "pretrain_gpt.py")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
LINE = re.compile(
    r"^ \[.*\] iteration +(?P<iteration>\d+)/ *\d+ \| consumed samples: +(?P<samples>\d+) \|"
    r".* learning rate: (?P<lr>\S+) \|.* lm loss: (?P<loss>\S+) \|.* grad norm: (?P<norm>\S+) \|",
    re.MULTILINE,
)
"""What scripts that parse Megatron-LM's logs read of a training line."""

TINY = {
    "num_layers": 4,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "seq_length": 32,
    "max_position_embeddings": 32,
    "hidden_dropout": 0,
    "attention_dropout": 0,
    "micro_batch_size": 2,
    "global_batch_size": 8,
    "train_iters": 10,
    "lr": 3e-3,
    "lr_decay_style": "constant",
    "eval_iters": 0,
    "log_interval": 1,
    "num_workers": 0,
    "tokenizer_type": "NullTokenizer",
    "vocab_size": 100,
    "distributed_backend": "gloo",
}


def flags(**fields: Any) -> list[str]:
    """The flags of a tiny run with ``fields`` changed: True is a switch, None leaves a flag out, lists are spread."""
    argv = []
    for name, value in {**TINY, **fields}.items():
        if value is None or value is False:
            continue
        argv.append("--" + name.replace("_", "-"))
        if value is not True:
            argv += map(str, value if isinstance(value, (list, tuple)) else [value])
    return argv


@dataclass(frozen=True)
class Finished:
    """A command that has ended: exit status, what it wrote, and the seconds it took."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def losses(self) -> dict[int, float]:
        """The loss of each iteration, as shown on the screen; a second line of one iteration is an error."""
        found = [(int(line["iteration"]), float(line["loss"])) for line in LINE.finditer(self.out)]
        assert len(dict(found)) == len(found), f"some iteration has two lines: {found}"
        return dict(found)


class Running:
    """A command that runs. Leaving its ``with`` block kills what is left of it."""

    def __init__(self, command: Sequence[object], **environment: str):
        self._started = time.monotonic()
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            start_new_session=True,
        )

    def wait_for(self, text: str) -> None:
        """Read standard output until a line has ``text`` in it."""
        for line in self._process.stdout:
            self._lines.append(line)
            if text in line:
                return
        raise AssertionError(f"ended without {text!r}:\n{''.join(self._lines)}\n{self._process.stderr.read()}")

    def send(self, number: signal.Signals, rank: int | None = None) -> None:
        """Send a signal to the command, or to the process of one rank that torchrun has started."""
        os.kill(self._process.pid if rank is None else self._pid_of(rank), number)

    def _pid_of(self, rank: int) -> int:
        pid = self._process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if f"RANK={rank}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
                return int(child)
        raise AssertionError(f"torchrun has no worker of rank {rank}")

    def finish(self, timeout: float = 240) -> Finished:
        """Wait for the end."""
        out, err = self._process.communicate(timeout=timeout)
        return Finished(self._process.returncode, "".join(self._lines) + out, err, time.monotonic() - self._started)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *exc_info) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()


def run(command: Sequence[object], **environment: str) -> Finished:
    """Run a command to its end."""
    with Running(command, **environment) as running:
        return running.finish()


def python(argv: Sequence[str]) -> list[str]:
    """The command that trains in one process."""
    return [sys.executable, PROGRAM, *argv]


def torchrun(num_processes: int, argv: Sequence[str], *options: str) -> list[str]:
    """The command that trains in several processes of this host."""
    return [*TORCHRUN, "--standalone", "--nproc-per-node", str(num_processes), *options, PROGRAM, *argv]


def free_port() -> int:
    """A port of this host that nothing listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def node(number: int, port: int, argv: Sequence[str]) -> list[str]:
    """The command that starts node ``number`` of two, of one process each, that meet at ``port`` of this host."""
    where = ("--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port", str(port))
    return [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", *where, PROGRAM, *argv]


def trained(num_processes: int, argv: Sequence[str], timeout: float = 120) -> None:
    """Train in forked workers, without the time that starting Python takes; a failure of any rank is raised."""
    run_world(_train, num_processes, list(argv), timeout=timeout)


def _train(rank: int, world_size: int, argv: list[str]) -> int:
    return pretrain(argv)


def printed(num_processes: int, argv: Sequence[str]) -> Finished:
    """:func:`trained`, and what all ranks write to the screen."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        statuses = run_world(_train_into, num_processes, list(argv), out, err)
        return Finished(max(statuses), out.read_text(), err.read_text(), time.monotonic() - started)


def _train_into(rank: int, world_size: int, argv: list[str], out: Path, err: Path) -> int:
    with open(out, "a", buffering=1) as out_file, open(err, "a", buffering=1) as err_file:
        with redirect_stdout(out_file), redirect_stderr(err_file):
            return pretrain(argv)


def events(metrics_file: Path, kind: str = "train") -> list[dict[str, Any]]:
    """The lines of one kind of a ``--metrics-file``."""
    return [event for event in map(json.loads, metrics_file.read_text().splitlines()) if event["event"] == kind]


def curve(metrics_file: Path) -> dict[int, tuple[float, float, float]]:
    """Iteration -> exact loss, gradient norm and learning rate."""
    return {e["iteration"]: (e["loss"], e["grad_norm"], e["learning_rate"]) for e in events(metrics_file)}

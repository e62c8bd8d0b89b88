"""``--metrics-file``: one JSON object a line for everything that the run reports, for programs to read.

``event`` says what a line is: start, train (one per log line), eval, save, exit. A resumed run appends; where it
repeats iterations, the later line counts. JSON has no numbers that are not finite: they are written as the strings
"NaN", "Infinity" and "-Infinity", which ``float`` reads back.
"""

import contextlib
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from megalite.checkpoint.manager import Saved
from megalite.errors import ConfigError
from megalite.train.exits import ExitReason
from megalite.train.hooks import Hook
from megalite.train.metrics import EvalResult, IntervalSummary, RunInfo


def build(run: RunInfo) -> Hook | None:
    """Where ``--metrics-file`` is given."""
    path = run.config.logging.metrics_file
    return None if path is None else JsonLines(Path(path))


class JsonLines(Hook):
    """Appends to the file at ``path``; each line is on its way to the disk before training goes on."""

    def __init__(self, path: Path):
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise self._unwritable(error) from error
        self._end_torn_line()

    def __str__(self) -> str:
        return f"--metrics-file {self._path}"

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"--metrics-file must be writable; {self._path}: {error.strerror}. Give another path.")

    def _end_torn_line(self) -> None:
        """A killed process may have left half a line, which must not swallow the first of ours."""
        if self._file.tell() > 0:
            self._file.seek(-1, 2)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def _write(self, event: str, **values: Any) -> None:
        record = {"event": event, "time": time.time(), **{name: _jsonable(value) for name, value in values.items()}}
        self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def on_start(self, run: RunInfo) -> None:
        try:
            self._write(
                "start",
                iteration=run.iteration,
                consumed_samples=run.consumed_samples,
                train_iters=run.train_iters,
                train_samples=run.train_samples,
                world_size=run.world_size,
                device=run.device_name,
            )
        except OSError as error:
            with contextlib.suppress(OSError):  # What could not be written is in the way of closing, too.
                self._file.close()
            raise self._unwritable(error) from error

    def on_log(self, summary: IntervalSummary) -> None:
        last, speed, memory = summary.last, summary.throughput, summary.memory
        self._write(
            "train",
            iteration=last.iteration,
            consumed_samples=last.consumed_samples,
            loss=summary.loss,
            grad_norm=last.grad_norm,
            num_zeros=last.num_zeros,
            params_norm=last.params_norm,
            learning_rate=last.learning_rate,
            weight_decay=last.weight_decay,
            global_batch_size=last.global_batch_size,
            loss_scale=last.loss_scale,
            num_iterations=summary.num_iterations,
            num_skipped=summary.num_skipped,
            num_nan=summary.num_nan,
            num_samples=summary.num_samples,
            num_tokens=summary.num_tokens,
            seconds=summary.seconds,
            tokens_per_second=speed.tokens_per_second,
            tokens_per_second_per_gpu=speed.tokens_per_second_per_gpu,
            tflops_per_gpu=speed.tflops_per_gpu,
            mfu=speed.mfu,
            memory_bytes=memory.headline,
            eta_seconds=summary.eta_seconds,
        )

    def on_eval(self, result: EvalResult) -> None:
        self._write(
            "eval",
            iteration=result.iteration,
            consumed_samples=result.consumed_samples,
            name=result.name,
            loss=result.loss,
            perplexity=result.perplexity,
            bits_per_byte=result.bits_per_byte,
            num_tokens=result.num_tokens,
            seconds=result.seconds,
        )

    def on_save(self, saved: Saved) -> None:
        self._write("save", **asdict(saved))

    def on_exit(self, reason: ExitReason, iteration: int) -> None:
        self._write("exit", iteration=iteration, reason=reason.name.lower())

    def close(self) -> None:
        self._file.close()


def _jsonable(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

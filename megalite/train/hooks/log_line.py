"""The lines on the screen: Megatron-LM's, so that scripts which parse its logs work here, then our own fields."""

from datetime import datetime, timedelta

from megalite.checkpoint.manager import Saved
from megalite.log import logger
from megalite.train.exits import ExitReason
from megalite.train.hooks import Hook
from megalite.train.metrics import EvalResult, IntervalSummary, RunInfo

GIB = 2**30


def build(run: RunInfo) -> Hook:
    """Always there."""
    return LogLine(run)


class LogLine(Hook):
    """Writes a line per log interval, evaluation and checkpoint, and one at the end."""

    def __init__(self, run: RunInfo):
        self._log_throughput = run.config.logging.log_throughput
        self._save, self._async_save = run.config.checkpoint.save, run.config.checkpoint.async_save

    def on_log(self, summary: IntervalSummary) -> None:
        logger.info(training_line(summary, datetime.now(), self._log_throughput))
        if summary.timers:
            logger.info(timer_lines(summary))

    def on_eval(self, result: EvalResult) -> None:
        logger.info(evaluation_lines(result))

    def on_save(self, saved: Saved) -> None:
        waited = f", of which training waited {saved.stalled_seconds:.1f} s" if self._async_save else ""
        logger.info(
            f"  successfully saved checkpoint from iteration {saved.iteration:7d} to {self._save}: "
            f"{saved.num_bytes / 1e9:.2f} GB in {saved.seconds:.1f} s{waited}"
        )

    def on_exit(self, reason: ExitReason, iteration: int) -> None:
        logger.info("stopped after iteration %d: %s", iteration, reason.text)


def training_line(summary: IntervalSummary, now: datetime, log_throughput: bool) -> str:
    """Megatron-LM's training line, then ours: speed, memory and the time left.

    TFLOP/s per GPU stand where Megatron puts them with ``--log-throughput``, among our fields without. Values that are
    not finite read NAN or INF, as Python's ``float`` accepts them.
    """
    last, speed = summary.last, summary.throughput
    tflops = [f"throughput per GPU (TFLOP/s/GPU): {_tflops(speed.tflops_per_gpu)}"]
    fields = [
        f"iteration {last.iteration:8d}/{summary.train_iters:8d}",
        f"consumed samples: {last.consumed_samples:12d}",
        f"elapsed time per iteration (ms): {1000 * summary.seconds_per_iteration:.1f}",
        *(tflops if log_throughput else []),
        f"learning rate: {last.learning_rate:.6E}",
        f"global batch size: {last.global_batch_size:5d}",
        f"lm loss: {summary.loss:.6E}",
        f"loss scale: {last.loss_scale:.1f}",
        *_optional("grad norm: {:.3f}", last.grad_norm),
        *_optional("num zeros: {:d}", last.num_zeros),
        *_optional("params norm: {:.3f}", last.params_norm),
        f"number of skipped iterations: {summary.num_skipped:3d}",
        f"number of nan iterations: {summary.num_nan:3d}",
        f"tokens/s: {speed.tokens_per_second:.0f}",
        f"tokens/s/GPU: {speed.tokens_per_second_per_gpu:.0f}",
        *([] if log_throughput else tflops),
        *_optional("MFU: {:.1%}", speed.mfu),
        f"memory (GiB): {summary.memory.headline / GIB:.2f}",
        f"ETA: {timedelta(seconds=round(summary.eta_seconds))}",
    ]
    return f" [{now:%Y-%m-%d %H:%M:%S.%f}] " + " | ".join(fields) + " |"


def _optional(template: str, value: float | int | None) -> list[str]:
    return [] if value is None else [template.format(value)]


def _tflops(value: float) -> str:
    # One decimal, as Megatron, is nothing at the speed of a CPU.
    return f"{value:.1f}" if value >= 1 else f"{value:.4f}"


def evaluation_lines(result: EvalResult) -> str:
    """Megatron-LM's framed line with loss and perplexity, then bits per byte and the number of tokens they are over."""
    fields = [
        f"{result.name} loss at iteration {result.iteration}",
        f"lm loss value: {result.loss:.6E}",
        f"lm loss PPL: {result.perplexity:.6E}",
        *_optional("bits per byte: {:.4f}", result.bits_per_byte),
        f"tokens: {result.num_tokens}",
        f"time (s): {result.seconds:.1f}",
    ]
    line = f" {' | '.join(fields)} | "
    frame = "-" * (len(line) + 1)
    return "\n".join((frame, line, frame))


def timer_lines(summary: IntervalSummary) -> str:
    """Megatron-LM's table of timers, in milliseconds per iteration."""
    rows = [
        f"    {(name + ' ').ljust(48, '.')}: ({1000 * low:.2f}, {1000 * high:.2f})"
        for name, (low, high) in summary.timers.items()
    ]
    return "\n".join(["(min, max) time across ranks (ms):", *rows])

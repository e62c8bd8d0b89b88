"""``--tensorboard-dir``: scalars under Megatron-LM's tags, by iteration, most of them also by consumed samples."""

from typing import Any

from megalite.errors import ConfigError
from megalite.train.hooks import Hook
from megalite.train.memory import Memory
from megalite.train.metrics import EvalResult, IntervalSummary, RunInfo, StepResult
from megalite.train.throughput import Throughput


def build(run: RunInfo) -> Hook | None:
    """Where ``--tensorboard-dir`` is given."""
    return None if run.config.logging.tensorboard_dir is None else TensorBoard(run)


class TensorBoard(Hook):
    """Every ``--tensorboard-log-interval`` steps that step's figures, and at each log line the interval's."""

    def __init__(self, run: RunInfo):
        self._options = run.config.logging
        self._world_size = run.world_size
        self._writer = _open_writer(self._options.tensorboard_dir, self._options.tensorboard_queue_size)

    def __str__(self) -> str:
        return f"--tensorboard-dir {self._options.tensorboard_dir}"

    def on_step(self, result: StepResult) -> None:
        if result.iteration % self._options.tensorboard_log_interval:
            return
        figures = {
            "learning-rate": result.learning_rate,
            "batch-size": result.global_batch_size,
            "lm loss": result.loss,
            "grad-norm": result.grad_norm,
            "num-zeros": result.num_zeros,
            "params-norm": result.params_norm,
            "loss-scale": result.loss_scale,
            "world-size": self._world_size,
        }
        self._add(figures, result.iteration, result.consumed_samples)

    def on_log(self, summary: IntervalSummary) -> None:
        figures = {"iteration-time": summary.seconds_per_iteration}
        if self._options.log_throughput:
            figures |= _speed_figures(summary.throughput)
        if self._options.log_timers_to_tensorboard:
            figures |= {f"{name}-time": high for name, (_, high) in summary.timers.items()}
        if self._options.log_memory_to_tensorboard:
            figures |= _memory_figures(summary.memory)
        self._add(figures, summary.last.iteration)
        self._writer.flush()

    def on_eval(self, result: EvalResult) -> None:
        figures = {f"lm loss {result.name}": result.loss, f"bits per byte {result.name}": result.bits_per_byte}
        if self._options.log_validation_ppl_to_tensorboard:
            figures[f"lm loss {result.name} ppl"] = result.perplexity
        self._add(figures, result.iteration, result.consumed_samples)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _add(self, figures: dict[str, float | None], iteration: int, consumed_samples: int | None = None) -> None:
        for tag, value in figures.items():
            if value is not None:
                self._writer.add_scalar(tag, value, iteration)
                if consumed_samples is not None:
                    self._writer.add_scalar(f"{tag} vs samples", value, consumed_samples)


def _speed_figures(speed: Throughput) -> dict[str, float | None]:
    return {
        "throughput": speed.tflops_per_gpu,
        "tokens-per-second": speed.tokens_per_second,
        "tokens-per-second-per-gpu": speed.tokens_per_second_per_gpu,
        "mfu": speed.mfu,
    }


def _memory_figures(memory: Memory) -> dict[str, float]:
    device = memory.device
    if device is None:
        return {"mem-rss-bytes": memory.rss}
    return {
        "mem-reserved-bytes": device.reserved,
        "mem-allocated-bytes": device.allocated,
        "mem-max-allocated-bytes": device.max_allocated,
        "mem-allocated-count": device.num_allocated,
    }


def _open_writer(directory: str, queue_size: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            f"--tensorboard-dir ({directory}) needs the tensorboard package, which is not installed: "
            "run `pip install tensorboard`, or leave the flag out."
        ) from error
    try:
        return SummaryWriter(log_dir=directory, max_queue=queue_size)
    except OSError as error:
        message = f"--tensorboard-dir must be a writable directory; {directory}: {error.strerror}. Give another path."
        raise ConfigError(message) from error

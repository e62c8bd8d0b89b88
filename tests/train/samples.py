"""Small objects that the tests of this directory share."""

from megalite.config import CheckpointConfig, Config, LoggingConfig, ModelConfig, TrainingConfig
from megalite.train.memory import Memory
from megalite.train.metrics import EvalResult, Interval, IntervalSummary, RunInfo, StepResult

# 40320 FLOPs per sample: worked out in test_throughput.py.
MODEL = ModelConfig(num_layers=2, hidden_size=8, num_attention_heads=2, seq_length=4, vocab_size=10)


def make_run(device_name="cpu", world_size=2, train_iters=10, iteration=0, save=None, **logging) -> RunInfo:
    """A run with a global batch of 6 samples, so of 6 x ``train_iters`` samples."""
    config = Config(
        model=MODEL,
        training=TrainingConfig(global_batch_size=6, train_iters=train_iters),
        checkpoint=CheckpointConfig(save=save),
        logging=LoggingConfig(**logging),
    )
    return RunInfo(
        config=config,
        world_size=world_size,
        device_name=device_name,
        iteration=iteration,
        consumed_samples=6 * iteration,
        train_iters=train_iters,
        train_samples=6 * train_iters,
    )


def make_step(iteration: int, loss: float = 2.0, **changes) -> StepResult:
    """A step of 6 samples in half a second."""
    fields = dict(
        consumed_samples=6 * iteration,
        num_tokens=20,
        grad_norm=1.25,
        learning_rate=3e-4,
        weight_decay=0.1,
        global_batch_size=6,
        loss_scale=1.0,
        skipped=False,
        nan=False,
        num_zeros=None,
        params_norm=None,
        seconds=0.5,
    )
    return StepResult(iteration=iteration, loss=loss, **{**fields, **changes})


def make_summary(run: RunInfo, *steps: StepResult, rss: int = 3 * 2**29, timers=None) -> IntervalSummary:
    """The summary of ``steps``, in a process of ``rss`` bytes (1.5 GiB)."""
    interval = Interval(run)
    for step in steps:
        interval.add(step)
    return interval.close(Memory(rss), timers)


def make_eval(
    iteration: int = 8, loss: float = 2.0, name: str = "validation", tokens_per_byte: float | None = None
) -> EvalResult:
    """An evaluation on 96 tokens in a quarter of a second."""
    return EvalResult(
        iteration, 6 * iteration, name, loss, num_tokens=96, seconds=0.25, tokens_per_byte=tokens_per_byte
    )

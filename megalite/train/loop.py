"""The training loop: steps, and what happens between them: log lines, evaluations, checkpoints, and the end."""

import time
from dataclasses import dataclass

import torch

from megalite.config import Config
from megalite.data.loader import BatchLoader
from megalite.data.sampler import microbatches
from megalite.errors import NumericsError
from megalite.optim.decay import WeightDecay
from megalite.optim.lr import LearningRate
from megalite.optim.scaler import DynamicScale, LossScaler
from megalite.parallel.collectives import all_reduce
from megalite.topology.microbatches import BatchSchedule
from megalite.train.checkpointing import Checkpointing
from megalite.train.engine import Engine
from megalite.train.evaluate import evaluate
from megalite.train.exits import ExitPolicy, ExitReason
from megalite.train.hooks import Hook
from megalite.train.memory import measure_memory
from megalite.train.metrics import EvalResult, Interval, RunInfo, StepResult
from megalite.train.state import Progress
from megalite.train.step import StepOutcome, train_step


@dataclass(frozen=True)
class EvalSet:
    """A held-out set: its name, where its samples come from and how many global batches are read of it."""

    name: str
    loader: BatchLoader
    num_batches: int


class TrainingLoop:
    """Runs a prepared engine from ``progress`` to the end of training, or until something asks to stop."""

    def __init__(
        self,
        run: RunInfo,
        engine: Engine,
        scaler: LossScaler,
        progress: Progress,
        batches: BatchSchedule,
        train_data: BatchLoader | None,
        checkpointing: Checkpointing,
        hooks: Hook,
    ):
        self._run, self._engine, self._scaler, self._progress = run, engine, scaler, progress
        self._batches, self._train_data = batches, train_data
        self._checkpointing, self._hooks = checkpointing, hooks
        self._config: Config = run.config
        self._learning_rate = LearningRate.from_config(self._config.optimizer, self._config.training)
        self._weight_decay = WeightDecay.from_config(self._config.optimizer, self._config.training)
        self._interval = Interval(run)
        self._evaluated: dict[str, int] = {}

    def train(self, eval_sets: list[EvalSet]) -> ExitReason:
        """Train to the end; returns why it stopped. The last state is saved, where ``--save`` is given."""
        training = self._config.training
        with ExitPolicy(training, self._run.train_iters) as policy:
            reason = ExitReason.NONE
            while reason is ExitReason.NONE:
                self._step()
                reason = self._agreed(policy.requested(self._progress.iteration))
                if self._interval.due or reason is not ExitReason.NONE:
                    self._log()
                if training.eval_interval and self._progress.iteration % training.eval_interval == 0:
                    self.evaluate(eval_sets)
                if self._checkpointing.due(self._progress.iteration) or reason is not ExitReason.NONE:
                    self._save()
        return reason

    def evaluate(self, eval_sets: list[EvalSet]) -> None:
        """Evaluate on each set and report it."""
        for held_out in eval_sets:
            loss, num_tokens, seconds = evaluate(self._engine, held_out.loader, held_out.num_batches, held_out.name)
            at, consumed = self._progress.iteration, self._progress.consumed_samples
            self._evaluated[held_out.name] = at
            self._hooks.on_eval(EvalResult(at, consumed, held_out.name, loss, num_tokens, seconds))

    def evaluated(self, name: str) -> bool:
        """Whether the parameters as they are now have been evaluated on the set."""
        return self._evaluated.get(name) == self._progress.iteration

    def _step(self) -> None:
        started = time.perf_counter()
        progress = self._progress
        lr = self._learning_rate.at(progress.updated_samples)
        weight_decay = self._weight_decay.at(progress.updated_samples)
        size, now = self._samples(progress.consumed_samples)
        _, ahead = self._samples(progress.consumed_samples + size)
        outcome = train_step(self._engine, self._scaler, self._train_data.load(now, ahead), lr, weight_decay)
        progress.iteration += 1
        progress.consumed_samples += size
        if outcome.updated:
            progress.updated_samples += size
        progress.num_updates = self._engine.optimizer.num_updates
        result = StepResult(
            iteration=progress.iteration,
            consumed_samples=progress.consumed_samples,
            loss=outcome.loss,
            num_tokens=outcome.num_tokens,
            grad_norm=outcome.grad_norm,
            learning_rate=lr,
            weight_decay=weight_decay,
            global_batch_size=size,
            loss_scale=outcome.loss_scale,
            skipped=not outcome.updated,
            nan=not outcome.finite,
            num_zeros=outcome.num_zeros,
            params_norm=outcome.params_norm,
            seconds=time.perf_counter() - started,
        )
        self._interval.add(result)
        self._hooks.on_step(result)
        self._refuse_non_finite(outcome)

    def _samples(self, consumed: int) -> tuple[int, list[range]]:
        """Global batch size of the step after ``consumed`` samples, and this rank's micro-batches in it; none after the end."""
        if consumed >= self._run.train_samples:
            return 0, []
        size = self._batches.at(consumed).global_batch_size
        dp, micro = self._engine.context.coords.dp, self._config.training.micro_batch_size
        return size, microbatches(consumed, size, micro, dp, self._engine.context.mesh.dp)

    def _refuse_non_finite(self, outcome: StepOutcome) -> None:
        if outcome.finite or not self._config.training.check_for_nan_in_loss_and_grad or isinstance(self._scaler, DynamicScale):
            return
        self._log()
        raise NumericsError(
            f"loss and gradient norm must be finite; in step {self._progress.iteration} the loss was {outcome.loss} and the "
            f"gradient norm {outcome.grad_norm}: {self._checkpointing.advice()} Lower --lr or look at the data of that step; "
            "--no-check-for-nan-in-loss-and-grad skips such steps and goes on."
        )

    def _log(self) -> None:
        self._hooks.on_log(self._interval.close(measure_memory(self._engine.context.device)))

    def _save(self) -> None:
        if self._checkpointing.enabled:
            seconds = self._checkpointing.save(self._engine, self._scaler, self._progress)
            if seconds is not None:
                self._hooks.on_save(self._progress.iteration, seconds)

    def _agreed(self, reason: ExitReason) -> ExitReason:
        """What the whole world does: the strongest wish of any rank, so that all stop after the same step."""
        wish = torch.tensor([int(reason)], device=self._engine.context.device)
        return ExitReason(int(all_reduce(wish, self._engine.context.world, "max").item()))

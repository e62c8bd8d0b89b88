"""The training loop: steps, and what happens between them: log lines, evaluations, checkpoints, and the end."""

import time
from functools import cached_property, partial
from typing import Callable

import torch

from megalite.config import Config
from megalite.data.loader import BatchLoader
from megalite.data.sampler import microbatches
from megalite.errors import NumericsError
from megalite.optim.decay import WeightDecay
from megalite.optim.lr import LearningRate
from megalite.optim.scaler import DynamicScale, LossScaler
from megalite.parallel.collectives import all_reduce, gather_objects
from megalite.topology.microbatches import BatchSchedule
from megalite.train.checkpointing import Checkpointing
from megalite.train.engine import Engine
from megalite.train.evaluate import EvalSet, evaluate
from megalite.train.exits import ExitPolicy, ExitReason
from megalite.train.hooks import Hook
from megalite.train.memory import measure_memory
from megalite.train.metrics import EvalResult, Interval, RunInfo, StepResult
from megalite.train.state import Progress
from megalite.train.step import StepOutcome, train_step
from megalite.train.timers import spread


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
        self._interval = Interval(run)
        self._evaluated: dict[str, int] = {}

    def train(self, eval_sets: list[EvalSet]) -> ExitReason:
        """Train to the end; returns why it stopped. The last state is saved, where ``--save`` is given."""
        run, saving = self._run, self._checkpointing.enabled
        with ExitPolicy(run.config.training, run.train_iters, saving, started=run.started) as policy:
            reason = ExitReason.NONE
            while reason is ExitReason.NONE:
                self._step_or_advise()
                reason = self._agreed(policy)
                if self._interval.due or reason is not ExitReason.NONE:
                    self._log()
                saving = self._checkpointing.due(self._progress.iteration)
                if saving:
                    self._save()
                evaluating = self._evaluation_due() and reason is not ExitReason.SIGNAL
                if evaluating:
                    self.evaluate(eval_sets, partial(self._signalled, policy))
                if evaluating or saving:
                    # A signal that came meanwhile must not wait for another step.
                    reason = self._agreed(policy)
            if len(self._interval):
                self._log()
            self._save(last=True)
        return reason

    def _evaluation_due(self) -> bool:
        every = self._config.training.eval_interval
        return every is not None and self._progress.iteration % every == 0

    def evaluate(self, eval_sets: list[EvalSet], stop: Callable[[], bool] = lambda: False) -> None:
        """Evaluate on each set and report it, until ``stop`` says yes."""
        for held_out in eval_sets:
            started = time.perf_counter()
            result = evaluate(self._engine, held_out, stop)
            if result is None:
                return
            self._evaluated[held_out.name] = self._progress.iteration
            self._hooks.on_eval(
                EvalResult(
                    iteration=self._progress.iteration,
                    consumed_samples=self._progress.consumed_samples,
                    name=held_out.name,
                    loss=result[0],
                    num_tokens=result[1],
                    seconds=time.perf_counter() - started,
                    tokens_per_byte=held_out.tokens_per_byte,
                )
            )

    def evaluated(self, name: str) -> bool:
        """Whether the parameters as they are now have been evaluated on the set."""
        return self._evaluated.get(name) == self._progress.iteration

    @cached_property
    def _learning_rate(self) -> LearningRate:
        return LearningRate.from_config(self._config.optimizer, self._config.training)

    @cached_property
    def _weight_decay(self) -> WeightDecay:
        return WeightDecay.from_config(self._config.optimizer, self._config.training)

    def _step_or_advise(self) -> None:
        try:
            self._step()
        except NumericsError as error:
            advice = self._checkpointing.advice()
            self._report_saves()
            error.args = (f"{error} {advice}",)
            raise

    def _step(self) -> None:
        started = time.perf_counter()
        progress = self._progress
        lr = self._learning_rate.at(progress.updated_samples)
        weight_decay = self._weight_decay.at(progress.updated_samples)
        size, now = self._samples(progress.consumed_samples)
        _, ahead = self._samples(progress.consumed_samples + size)
        with self._engine.timers("batch-generator"):
            batches = self._train_data.load(now, ahead)
        outcome = train_step(self._engine, self._scaler, batches, lr, weight_decay)
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
        """Global batch size of the step after ``consumed`` samples, and this rank's micro-batches; none at the end."""
        if consumed >= self._run.train_samples:
            return 0, []
        size = self._batches.at(consumed).global_batch_size
        dp, micro = self._engine.context.coords.dp, self._config.training.micro_batch_size
        return size, microbatches(consumed, size, micro, dp, self._engine.context.mesh.dp)

    def _refuse_non_finite(self, outcome: StepOutcome) -> None:
        checked = self._config.training.check_for_nan_in_loss_and_grad and not isinstance(self._scaler, DynamicScale)
        if outcome.finite or not checked:
            return
        self._log()
        raise NumericsError(
            f"loss and gradient norm must be finite; in step {self._progress.iteration} the loss was {outcome.loss} "
            f"and the gradient norm {outcome.grad_norm}: lower --lr or look at the data of that step; "
            "--no-check-for-nan-in-loss-and-grad skips such steps and goes on."
        )

    def _log(self) -> None:
        timers, context = {}, self._engine.context
        if self._config.logging.times_steps:
            timers = spread(gather_objects(self._engine.timers.take(), context.world), len(self._interval))
        self._hooks.on_log(self._interval.close(measure_memory(context.device), timers))

    def _save(self, last: bool = False) -> None:
        if self._checkpointing.enabled:
            self._checkpointing.save(self._engine, self._scaler, self._progress, last)
            self._report_saves()

    def _report_saves(self) -> None:
        for saved in self._checkpointing.take_reports():
            self._hooks.on_save(saved)

    def _agreed(self, policy: ExitPolicy) -> ExitReason:
        """What the whole world does: the strongest wish of any rank, so that all stop after the same step.

        On the way, ends a save that no rank is busy with any more, and makes one where a signal has asked for it.
        """
        wishes = (policy.requested(self._progress.iteration), policy.save_requested, self._checkpointing.busy)
        reason, save_requested, busy = self._largest(*wishes)
        if not busy:
            self._checkpointing.settle()
            self._report_saves()
        if save_requested:
            policy.save_granted()
            self._save()
        return ExitReason(reason)

    def _signalled(self, policy: ExitPolicy) -> bool:
        """Whether a signal to stop has reached any rank."""
        return bool(self._largest(policy.signalled)[0])

    def _largest(self, *values: int) -> list[int]:
        """The largest of each value over all ranks."""
        tensor = torch.tensor([int(value) for value in values], device=self._engine.context.device)
        return all_reduce(tensor, self._engine.context.world, "max").tolist()

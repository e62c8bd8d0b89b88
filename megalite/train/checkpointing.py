"""Saving and resuming a run: what the training loop does with the checkpoint manager."""

import contextlib
import dataclasses
from typing import Any, Callable, Iterator

from megalite.checkpoint.agree import shared_error
from megalite.checkpoint.manager import CheckpointManager, Saved
from megalite.checkpoint.match import Strictness
from megalite.checkpoint.store import Store
from megalite.config import Config
from megalite.config.dump import flat, to_yaml
from megalite.config.report import raise_together
from megalite.convert.export import export_huggingface, foreign_weights
from megalite.convert.extras import Extras, extras_of
from megalite.convert.source import Source
from megalite.data.stream import History, Stream
from megalite.errors import CheckpointError
from megalite.log import logger
from megalite.optim.decay import WeightDecay
from megalite.optim.lr import LearningRate
from megalite.optim.scaler import LossScaler
from megalite.parallel.context import ParallelContext
from megalite.train.configure import stored_config
from megalite.train.engine import Engine
from megalite.train.state import (
    MAIN_PREFIX,
    Progress,
    is_optimizer_state,
    optimizer_pieces,
    parameter_pieces,
    pieces_to_load,
)
from megalite.train.vocabulary import without_vocabulary


_FUNCTION = (
    "position_embedding_type rotary_base rotary_percent rotary_interleaved rotary_seq_len_interpolation_factor "
    "use_rope_scaling rope_scaling_factor normalization norm_epsilon swiglu squared_relu relu attention_dropout "
    "hidden_dropout label_smoothing"
).split()
"""Settings that change what a model computes from the same parameters."""

_UPDATE = "clip_grad adam_beta1 adam_beta2 adam_eps sgd_momentum lion_beta1 lion_beta2".split()
"""Settings of the update that are neither state nor part of the curves."""


class Checkpointing:
    """The checkpoints of one run: opened first, then told of the data, then restored from."""

    def __init__(self, config: Config, context: ParallelContext):
        self._config, self._flags = config, config.checkpoint
        self._rank = context.rank
        group = context.another_world("checkpoint") if self._flags.async_save else context.world
        self._manager = CheckpointManager(config.checkpoint, group)
        self._weights = foreign_weights(self._flags.load, self._flags.ckpt_step)
        self._extras: Extras = {} if self._weights is None else self._weights.extras
        self._stream: Stream | None = None
        self._last_saved: int | None = None
        self._reports: list[Saved] = []
        resuming = self._weights is None and self._flags.load is not None
        self._store = self._manager.resume() if resuming else None

    @property
    def history(self) -> History | None:
        """What the checkpoint that the run resumes from says of its data."""
        return None if self._store is None or self._flags.finetune else History.from_meta(self._store.meta)

    @property
    def progress(self) -> Progress:
        """Where the run starts: at the beginning, or where the checkpoint that it resumes from left off."""
        return Progress() if self._store is None or self._flags.finetune else Progress.from_meta(self._store.meta)

    def account_for(self, stream: Stream | None) -> None:
        """Take the stream of samples that checkpoints are to account for.

        Raises :class:`ConfigError` where the run would go on with other data or along other curves than those it began
        with without being told to.
        """
        self._stream = stream
        if self._store is not None and not self._flags.finetune:
            self._compare(self._store)

    @property
    def enabled(self) -> bool:
        """Whether anything is to be saved."""
        return self._flags.save is not None

    def due(self, iteration: int) -> bool:
        """Whether ``--save-interval`` asks for a checkpoint after this iteration."""
        return self.enabled and bool(self._flags.save_interval) and iteration % self._flags.save_interval == 0

    def save(self, engine: Engine, scaler: LossScaler, progress: Progress, last: bool = False) -> None:
        """Save the state as it is now, unless it is saved already. The ``last`` save of a run is waited for.

        Raises :class:`CheckpointError` if it fails, or an earlier one that was being written; under
        ``--continue-on-save-failure`` only if the last one does.
        """
        tolerant = self._flags.continue_on_save_failure
        with self._tolerance(tolerant or last):
            self._note(self._manager.wait())
        if progress.iteration == self._last_saved:
            return
        engine.strategy.wait_params()
        pieces = parameter_pieces(engine)
        if not self._flags.no_save_optim:
            pieces += optimizer_pieces(engine, owned_only=True)
        meta = {**progress.to_meta(), "loss_scaler": scaler.state(), **self._data_meta(progress)}
        with self._tolerance(tolerant and not last):
            config_yaml = to_yaml(without_vocabulary(self._config))
            accompany = self._export if self._flags.save_hf else None
            self._note(self._manager.save(progress.iteration, pieces, meta, config_yaml, accompany))
            if last:
                self._note(self._manager.wait())

    def _data_meta(self, progress: Progress) -> dict[str, Any]:
        if self._stream is None:
            return {"data_fingerprint": None}
        account = self._stream.to_meta(progress.consumed_samples)
        return {"data_fingerprint": self._stream.fingerprint, "data_stream": account}

    def _export(self, store: Store) -> None:
        export_huggingface(store, self._extras)

    @property
    def busy(self) -> bool:
        """Whether this rank is writing a checkpoint while training goes on."""
        return self._manager.busy

    def settle(self) -> None:
        """Wait for a checkpoint that is being written. A failure is handled as in :meth:`save`."""
        with self._tolerance(self._flags.continue_on_save_failure):
            self._note(self._manager.wait())

    def take_reports(self) -> list[Saved]:
        """The checkpoints that are complete since this was last asked."""
        reports, self._reports = self._reports, []
        return reports

    def advice(self) -> str:
        """A sentence for a run that fails: what it can resume from, once what is being written is on disk."""
        with self._tolerance(True):
            self._note(self._manager.wait())
        if self._last_saved is None:
            return "This run has saved no checkpoint."
        return f"The last good checkpoint is that of step {self._last_saved} in {self._flags.save}."

    def _note(self, saved: Saved | None) -> None:
        if saved is not None:
            self._last_saved = saved.iteration
            self._reports.append(saved)

    @contextlib.contextmanager
    def _tolerance(self, tolerant: bool) -> Iterator[None]:
        try:
            yield
        except CheckpointError as error:
            if not tolerant:
                raise
            if self._rank == 0:
                logger.warning(str(error))

    def restore(self, engine: Engine, scaler: LossScaler) -> Progress:
        """Load what ``--load`` means into the engine; a fresh :class:`Progress` if there is nothing to load."""
        if self._weights is not None:
            return self._begin_with(self._weights, engine)
        store = self._store
        if store is None:
            return Progress()
        self._extras = extras_of(self._config, store.directory)
        self._warn_of_changes(store)
        with_state = not (self._flags.finetune or self._flags.no_load_optim)
        if with_state:
            _require_optimizer_state(store)
        strictness = Strictness(
            unread=_dispensable(store, with_state),
            missing="log" not in self._flags.dist_ckpt_strictness,
            surplus=self._flags.dist_ckpt_strictness == "raise_all",
            convert=True,
        )
        self._manager.load(store, pieces_to_load(engine, store, with_state), strictness)
        engine.optimizer.refresh_params()
        if self._flags.finetune:
            return Progress()
        progress = self.progress
        if with_state:
            engine.optimizer.num_updates = progress.num_updates
            scaler.load(store.meta["loss_scaler"])
        if self._flags.save == self._flags.load:
            self._last_saved = progress.iteration
        return progress

    def _warn_of_changes(self, store: Store) -> None:
        """Tell what the tensors of ``store`` cannot: that they are read by another function, or updated otherwise."""
        names = _FUNCTION if self._flags.finetune else (*_FUNCTION, *_UPDATE)
        before, after = flat(stored_config(store)), flat(self._config)
        changed = [f"{name} {before[name]} there, {after[name]} now" for name in names if before[name] != after[name]]
        if changed and self._rank == 0:
            logger.warning(f"the run goes on with other settings than those of {store.directory}: {'; '.join(changed)}")

    def _begin_with(self, weights: Source, engine: Engine) -> Progress:
        """Take the parameters of another program's model."""
        self._manager.load(weights, pieces_to_load(engine, weights, with_state=False), Strictness(convert=True))
        engine.optimizer.refresh_params()
        logger.info(f"beginning with the weights of {weights.directory}")
        return Progress()

    def close(self) -> None:
        """Finish writing and let other jobs use the directory."""
        self._manager.close()

    def _compare(self, store: Store) -> None:
        """Refuse to continue a run on other data or along other curves without being told to."""
        problems = []
        stored = store.meta.get("data_fingerprint")
        now = None if self._stream is None else self._stream.fingerprint
        if None not in (stored, now) and stored != now and not self._flags.allow_data_change:
            problems.append(
                f"a run must go on with the data it began with; {store.directory} was trained on another stream of "
                "samples (corpus, weights, --split, --seq-length, --seed or number of epochs differ): give the same, "
                "or --allow-data-change to go on anyway."
            )
        if not (self._config.optimizer.override_opt_param_scheduler or self._config.training.skip_train):
            differing = _curve_differences(stored_config(store), self._config)
            if differing:
                problems.append(
                    f"learning rate and weight decay must follow the curves of {store.directory}; differing: "
                    f"{'; '.join(differing)}. Give the same flags, or --override-opt_param-scheduler for the new."
                )
        raise_together(problems)


def _require_optimizer_state(store: Store) -> None:
    if not any(is_optimizer_state(name) for name in store.names()):
        raise shared_error(
            f"{store.directory} must hold optimizer state to resume from; it was saved with --no-save-optim, or has "
            "given it up under --keep-weights-of-older: give --no-load-optim or --finetune, or resume from a newer one."
        )


def _dispensable(store: Store, with_state: bool) -> Callable[[str], bool]:
    """Tells the tensors of ``store`` that a run need not want: state that it begins anew, and rounded copies."""
    names = frozenset(store.names())
    return lambda name: MAIN_PREFIX + name in names or (is_optimizer_state(name) and not with_state)


def _curve_differences(before: Config, after: Config) -> list[str]:
    old, new = _curves(before), _curves(after)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    differing = [f"{name} {old.get(name)} there, {new.get(name)} now" for name in names]
    batches = [config.training.global_batch_size for config in (before, after)]
    if differing and batches[0] != batches[1]:
        differing.append(f"global_batch_size {batches[0]} there, {batches[1]} now")
    return differing


def _curves(config: Config) -> dict[str, object]:
    """What shapes the learning rate and the weight decay over training, by name; lengths in samples."""
    rate = dataclasses.asdict(LearningRate.from_config(config.optimizer, config.training))
    decay = dataclasses.asdict(WeightDecay.from_config(config.optimizer, config.training))
    if rate["decay_style"] == "constant":
        del rate["min_lr"], rate["decay_samples"]
    return {**rate, **{f"weight decay {name}": value for name, value in decay.items()}}

"""Rules of batches, length, precision and recomputation."""

from typing import Iterator

from megalite.config.report import nearest_multiples
from megalite.config.root import Config


def one_precision(config: Config, world_size: int) -> Iterator[str]:
    chosen = [name for name in ("bf16", "fp16", "fp64") if getattr(config.training, name)]
    if len(chosen) > 1:
        yield f"at most one precision may be chosen; given {' and '.join(chosen)}: keep one."


def reduction_is_no_narrower_than_the_model(config: Config, world_size: int) -> Iterator[str]:
    training = config.training
    if training.grad_reduce_in_bf16 and not training.bf16:
        yield f"grad_reduce_in_bf16 needs bf16; the model is {training.dtype}: add --bf16, or drop it."


def one_length(config: Config, world_size: int) -> Iterator[str]:
    training = config.training
    if training.train_iters is not None and training.train_samples is not None:
        yield (
            f"the length of training must be given once; given train_iters {training.train_iters} and train_samples "
            f"{training.train_samples}: keep one."
        )
    if training.train_iters is None and training.train_samples is None and not training.skip_train:
        yield "the length of training must be given: add --train-iters or --train-samples (or --skip-train)."


def _samples_at_once(config: Config, world_size: int) -> int:
    """Micro-batch size x data-parallel size; 0 when the world does not divide, which has a rule of its own."""
    parallel = config.parallel
    model = parallel.tensor_model_parallel_size * parallel.pipeline_model_parallel_size * parallel.context_parallel_size
    return 0 if world_size % model else config.training.micro_batch_size * (world_size // model)


def batches_are_whole(config: Config, world_size: int) -> Iterator[str]:
    training, at_once = config.training, _samples_at_once(config, world_size)
    batch = training.global_batch_size
    if at_once and batch is not None and batch % at_once:
        dp = at_once // training.micro_batch_size
        yield (
            f"global_batch_size ({batch}) must be divisible by micro_batch_size ({training.micro_batch_size}) x "
            f"data-parallel size ({dp}) = {at_once}: use {nearest_multiples(batch, at_once)}, or another "
            "micro_batch_size or number of processes."
        )


def ramp_up_has_its_ends(config: Config, world_size: int) -> Iterator[str]:
    training = config.training
    if training.rampup_batch_size is not None and training.global_batch_size is None:
        yield "rampup_batch_size needs global_batch_size, at which it ends: add --global-batch-size."
    if training.rampup_batch_size is not None and training.train_samples is None:
        yield "rampup_batch_size needs a length in samples: replace --train-iters by --train-samples."


def recomputation_is_complete(config: Config, world_size: int) -> Iterator[str]:
    training = config.training
    parts = {"recompute_method": training.recompute_method, "recompute_num_layers": training.recompute_num_layers}
    given = [f"{name} {value}" for name, value in parts.items() if value is not None]
    if training.recompute_granularity == "full":
        missing = [name for name, value in parts.items() if value is None]
        if missing:
            yield f"recompute_granularity full needs {' and '.join(missing)}: for example uniform and 1."
    elif given:
        yield (
            f"{' and '.join(given)} needs recompute_granularity full; given "
            f"{training.recompute_granularity or 'none'}: add --recompute-granularity full, or drop the other."
        )


def recomputed_layers_exist(config: Config, world_size: int) -> Iterator[str]:
    layers, recomputed = config.model.num_layers, config.training.recompute_num_layers
    if recomputed is not None and recomputed > layers:
        yield f"recompute_num_layers ({recomputed}) must be at most num_layers ({layers}): use 1 to {layers}."

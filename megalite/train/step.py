"""One training step: micro-batches through the pipeline, gradients summed, one update, on every rank alike."""

import hashlib
import math
from dataclasses import dataclass

import torch

from megalite.dp.clip import clip_coefficient, grad_norm, num_zeros, params_norm
from megalite.errors import NumericsError
from megalite.optim.scaler import LossScaler
from megalite.parallel.collectives import all_reduce, gather_objects
from megalite.parallel.p2p import Tensors
from megalite.train.engine import Engine


@dataclass(frozen=True)
class StepOutcome:
    """What a step found, equal on every rank; see :class:`megalite.train.metrics.StepResult`."""

    loss: float
    num_tokens: int
    grad_norm: float
    loss_scale: float
    updated: bool
    finite: bool
    num_zeros: int | None = None
    params_norm: float | None = None


def reduce_loss(engine: Engine, results: list[Tensors]) -> tuple[float, float]:
    """Sum of losses and number of tokens over the micro-batches of all replicas, on every rank."""
    totals = torch.zeros(2, dtype=torch.float64, device=engine.context.device)
    if engine.owns_loss:
        for result in results:
            totals += torch.stack((result["loss_sum"].double(), result["num_tokens"].double()))
    loss_sum, num_tokens = all_reduce(totals, engine.context.world).tolist()
    return loss_sum, num_tokens


def train_step(
    engine: Engine, scaler: LossScaler, batches: list[Tensors], lr: float, weight_decay: float
) -> StepOutcome:
    """Train on this rank's micro-batches.

    Gradients are sums over tokens until here; the number of tokens of the global batch, the loss scale and the clip
    coefficient become one factor of the update. A loss or gradient that is not finite leaves parameters and state as
    they are, on every rank.
    """
    engine.strategy.begin_step(len(batches))
    seed = _backward_seed(engine, scaler, len(batches))
    with engine.timers("forward-backward"):
        results = engine.executor.run(engine.schedules.training(len(batches)), batches, seed)
    with engine.timers("all-grads-sync"):
        engine.strategy.finish_reduce()
    loss_sum, num_tokens = reduce_loss(engine, results)
    factor = 1.0 / (max(num_tokens, 1.0) * seed)
    slices = engine.strategy.slices()
    norm = grad_norm(slices, engine.context, factor)
    loss = loss_sum / max(num_tokens, 1.0)
    finite = math.isfinite(norm) and math.isfinite(loss)
    zeros = num_zeros(slices, engine.context) if engine.config.logging.log_num_zeros_in_grad else None
    scale = scaler.scale
    scaler.update(overflow=not finite)
    if finite:
        factor *= clip_coefficient(norm, engine.config.optimizer.clip_grad)
        with engine.timers("optimizer"):
            engine.optimizer.step(lr, weight_decay, factor)
            engine.strategy.publish()
        if engine.config.parallel.check_replicas:
            check_replicas(engine)
    norm_of_params = None
    if engine.config.logging.log_params_norm:
        norm_of_params = params_norm(slices, engine.optimizer.main_params(), engine.context)
    return StepOutcome(loss, int(num_tokens), norm, scale, finite, finite, zeros, norm_of_params)


def _backward_seed(engine: Engine, scaler: LossScaler, num_microbatches: int) -> float:
    """Gradient of the sum of the loss over tokens with which the backward pass begins.

    float16 gradients are to have the size that a loss scale is chosen for, that of the mean loss (over all tokens, as
    the number of unmasked ones is not known yet); where there is no scale, the sum's own gradient, 1, is exact.
    """
    training = engine.config.training
    if not training.fp16:
        return scaler.scale
    num_samples = num_microbatches * training.micro_batch_size * engine.context.mesh.dp
    return scaler.scale / (num_samples * engine.config.model.seq_length)


def check_replicas(engine: Engine) -> None:
    """Raise :class:`NumericsError` naming the first parameter whose copies on different ranks differ in any bit."""
    engine.strategy.wait_params()
    prints = {}
    for stage in engine.stages.values():
        for parameter in stage.parameters():
            held = parameter.detach()[: parameter.spec.box.extent[0]].contiguous()
            digest = hashlib.sha256(held.cpu().view(torch.uint8).numpy()).digest()
            prints[parameter.spec.name, parameter.spec.box] = digest
    found: dict = {}
    for rank, others in enumerate(gather_objects(prints, engine.context.world)):
        for key, value in others.items():
            holder, known = found.setdefault(key, (rank, value))
            if known != value:
                raise NumericsError(
                    f"all copies of a parameter must be equal bit for bit; {key[0]} differs between rank {holder} and "
                    f"rank {rank}: a fault of megalite or of the hardware, not of the configuration; please report it."
                )

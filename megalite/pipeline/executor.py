"""The executor: runs a lowered schedule on this rank's virtual stages.

It is a loop over a table from action kind to method and has no schedule's name in it. One rank, gradient accumulation
and evaluation are schedules like any other.
"""

from dataclasses import dataclass

import torch

from megalite.parallel.p2p import Channel, Receive, Tensors, TensorSpec, Transport
from megalite.pipeline.backward import Backward
from megalite.pipeline.stage import Stage
from megalite.schedule.actions import Kind, Schedule
from megalite.topology.placement import owner

Key = tuple[int, int]
"""(virtual stage, micro-batch)."""


@dataclass
class _Saved:
    """What the backward of one (stage, micro-batch) needs. The outputs themselves are gone."""

    inputs: Tensors
    backward: Backward


class Executor:
    """Runs schedules over the stages that this rank owns.

    ``carry`` declares the tensors that stages exchange; gradients flow back for those of floating dtype.
    """

    def __init__(
        self, stages: dict[int, Stage], pp_rank: int, transport: Transport | None, carry: dict[str, TensorSpec]
    ):
        self._stages, self._pp_rank, self._transport = stages, pp_rank, transport
        self._carry = carry
        self._grads = {name: spec for name, spec in carry.items() if spec.dtype.is_floating_point}
        self._do = {
            Kind.F: self._forward,
            Kind.B: self._backward,
            Kind.I: self._backward_input,
            Kind.W: self._backward_weight,
            Kind.SEND_F: self._send_forward,
            Kind.RECV_F: self._post_forward,
            Kind.SEND_B: self._send_backward,
            Kind.RECV_B: self._post_backward,
        }

    def run(self, schedule: Schedule, batches: list[Tensors], loss_scale: float = 1.0) -> list[Tensors]:
        """Run this rank's actions; ``batches[m]`` is micro-batch m's data.

        Returns, for each micro-batch, what the last stage returned (``loss_sum`` and ``num_tokens``, detached), or an
        empty list on ranks that do not own it. Gradients are those of the sum of ``loss_sum`` times ``loss_scale``.
        """
        assert len(batches) == schedule.num_microbatches, (
            f"{len(batches)} batches for {schedule.num_microbatches} micro-batches"
        )
        self._pp, self._last = schedule.pp, schedule.num_stages - 1
        self._batches, self._loss_scale = batches, loss_scale
        self._results: dict[int, Tensors] = {}
        self._saved: dict[Key, _Saved] = {}
        self._closures: dict[Key, list] = {}
        self._outputs: dict[Key, Tensors] = {}
        self._input_grads: dict[Key, Tensors] = {}
        self._arriving: dict[Key, Receive] = {}
        self._grads_arriving: dict[Key, Receive] = {}
        with torch.set_grad_enabled(not schedule.forward_only):
            for action in schedule.ranks[self._pp_rank]:
                self._do[action.kind](action.stage, action.microbatch)
        if self._transport is not None:
            self._transport.flush()
        left = [self._saved, self._closures, self._outputs, self._input_grads, self._arriving, self._grads_arriving]
        assert not any(left), f"schedule {schedule.name} left work behind: {left}"
        return [self._results[m] for m in sorted(self._results)]

    def _forward(self, stage: int, microbatch: int) -> None:
        key = (stage, microbatch)
        inputs = self._take_inputs(stage, microbatch)
        outputs = self._stages[stage](dict(inputs), self._batches[microbatch])
        if torch.is_grad_enabled():
            names = ["loss_sum"] if stage == self._last else sorted(n for n in outputs if outputs[n].requires_grad)
            self._saved[key] = _Saved(inputs, Backward({name: outputs[name] for name in names}))
        detached = {name: tensor.detach() for name, tensor in outputs.items()}
        if stage == self._last:
            self._results[microbatch] = detached
        else:
            self._outputs[key] = detached

    def _take_inputs(self, stage: int, microbatch: int) -> Tensors:
        if stage == 0:
            return {}
        key = (stage, microbatch)
        if key in self._arriving:
            inputs = self._arriving.pop(key).wait()
        else:
            inputs = self._outputs.pop((stage - 1, microbatch))
        for tensor in inputs.values():
            tensor.requires_grad_(torch.is_grad_enabled() and tensor.is_floating_point())
        return inputs

    def _backward(self, stage: int, microbatch: int) -> None:
        key = (stage, microbatch)
        saved = self._saved.pop(key)
        saved.backward.run(self._take_output_grads(stage, microbatch))
        if stage > 0:
            self._input_grads[key] = {
                name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                for name, tensor in saved.inputs.items()
                if tensor.requires_grad
            }

    def _take_output_grads(self, stage: int, microbatch: int) -> Tensors:
        key = (stage, microbatch)
        if stage == self._last:
            loss = self._results[microbatch]["loss_sum"]
            return {"loss_sum": torch.full_like(loss, self._loss_scale)}
        if key in self._grads_arriving:
            return self._grads_arriving.pop(key).wait()
        return self._input_grads.pop((stage + 1, microbatch))

    def _backward_input(self, stage: int, microbatch: int) -> None:
        with self._stages[stage].wgrad.deferred() as closures:
            self._backward(stage, microbatch)
        self._closures[stage, microbatch] = closures

    def _backward_weight(self, stage: int, microbatch: int) -> None:
        for closure in self._closures.pop((stage, microbatch)):
            closure()

    def _channel(self, source: int, target: int, direction: str) -> Channel:
        return Channel(owner(source, self._pp), owner(target, self._pp), direction)

    def _send_forward(self, stage: int, microbatch: int) -> None:
        self._transport.send(self._channel(stage, stage + 1, "forward"), self._outputs.pop((stage, microbatch)))

    def _post_forward(self, stage: int, microbatch: int) -> None:
        channel = self._channel(stage - 1, stage, "forward")
        self._arriving[stage, microbatch] = self._transport.post(channel, self._carry)

    def _send_backward(self, stage: int, microbatch: int) -> None:
        self._transport.send(self._channel(stage, stage - 1, "backward"), self._input_grads.pop((stage, microbatch)))

    def _post_backward(self, stage: int, microbatch: int) -> None:
        channel = self._channel(stage + 1, stage, "backward")
        self._grads_arriving[stage, microbatch] = self._transport.post(channel, self._grads)

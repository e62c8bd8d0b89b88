"""Plain data parallelism: every rank sums all gradients and makes all updates."""

import torch

from megalite.dp.buckets import Bucket
from megalite.dp.strategy import DataParallel
from megalite.parallel.collectives import Handle, start_all_reduce


class Strategy(DataParallel):
    """One all-reduce a bucket; updates are equal on all ranks, so nothing is left to share."""

    def publish(self) -> None:
        """Every rank has made every update."""

    def _start_reduce(self, bucket: Bucket, grad: torch.Tensor) -> Handle:
        return start_all_reduce(grad, self._dp)

    def _updated(self, bucket: Bucket) -> tuple[int, int]:
        return 0, bucket.grad.numel()

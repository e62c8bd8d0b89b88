"""ZeRO stage 1: each data-parallel rank updates its slice of every bucket and holds the optimizer state of that alone.

Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models". Slices ignore where
parameters begin and end.
"""

import torch

from megalite.dp.buckets import Bucket
from megalite.dp.strategy import DataParallel
from megalite.parallel.collectives import Handle, start_all_gather_into, start_reduce_scatter_into


class Strategy(DataParallel):
    """One reduce-scatter of gradients and one all-gather of parameters a bucket, both in place.

    After the reduction, the gradients outside this rank's slices have no meaning.
    """

    def publish(self) -> None:
        """Gather the updated parameters; with ``overlap_param_gather`` only begin to, in the order of their use."""
        for index in reversed(range(len(self.buckets))):
            bucket = self.buckets[index]
            start, stop = self._updated(bucket)
            self._gathering[index] = start_all_gather_into(bucket.param, bucket.param[start:stop], self._dp)
        if not self._config.overlap_param_gather:
            self.wait_params()

    def _start_reduce(self, bucket: Bucket, grad: torch.Tensor) -> Handle:
        start, stop = self._updated(bucket)
        return start_reduce_scatter_into(grad[start:stop], grad, self._dp)

    def _updated(self, bucket: Bucket) -> tuple[int, int]:
        return bucket.part(self._dp.rank, self._dp.size)

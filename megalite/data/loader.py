"""Micro-batches of tensors, read ahead by threads.

Every rank that needs data reads it. That the ranks of a tensor-parallel group read the same pages costs less than that
one reads them and sends them to the others (benchmarks/loader.py); stages in the middle of a pipeline read nothing.
"""

from concurrent.futures import Future
from typing import Collection, Sequence

import numpy as np
import torch

from megalite.data.dataset import Dataset
from megalite.data.workers import Workers
from megalite.errors import DataError

Batch = dict[str, torch.Tensor]


class BatchLoader:
    """Turns sample numbers into micro-batches, and holds no other state: the caller says which samples come when.

    A micro-batch has those fields of the samples that are asked for, each ``[b, ...]``, and ``sample_ids``, int64
    ``[b]``: the samples' numbers. Samples from ``num_samples`` on are padding without loss, so that every micro-batch
    is full whatever the number of samples. With ``fields`` empty nothing is read. ``num_workers`` threads read ahead;
    with 0, reading happens when a batch is asked for. Neither shows in the batches.
    """

    def __init__(
        self, dataset: Dataset, num_samples: int, fields: Collection[str], device: torch.device, num_workers: int = 0
    ):
        if num_samples > len(dataset):
            raise DataError(
                f"the data must hold the {num_samples} samples of the run; it holds {len(dataset)}: build it for more."
            )
        self._dataset = dataset
        self._num_samples = num_samples
        self._fields = sorted(set(fields) - {"sample_ids"})
        self._device = device
        self._workers = Workers(num_workers, "megalite-loader") if num_workers and self._fields else None
        self._ahead: dict[range, Future] = {}

    def load(self, samples: Sequence[range], ahead: Sequence[range] = ()) -> list[Batch]:
        """One micro-batch for each range of sample numbers; then start reading ``ahead``, what the next call will want.

        Raises what reading raised, in whichever thread, and :class:`DataError` if a thread has died.
        """
        reading, self._ahead = self._ahead, {}
        for numbers in reading.keys() - set(samples):
            reading[numbers].cancel()
        batches = [
            self._workers.result(reading[numbers]) if numbers in reading else self._read(numbers) for numbers in samples
        ]
        if self._workers is not None:
            self._ahead = {numbers: self._workers.submit(self._read, numbers) for numbers in ahead}
        return [
            {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()} for batch in batches
        ]

    def close(self) -> None:
        """End the threads; whatever was read ahead is dropped."""
        if self._workers is not None:
            self._workers.close()
        self._ahead = {}

    def _read(self, numbers: range) -> Batch:
        batch = {"sample_ids": torch.arange(numbers.start, numbers.stop)}
        if self._fields:
            try:
                samples = [self._dataset[n] if n < self._num_samples else self._dataset.padding() for n in numbers]
            except OSError as error:
                raise DataError(
                    f"samples {numbers.start}..{numbers.stop - 1} must be readable; {error}: check the storage of the "
                    "data."
                ) from error
            batch |= {name: torch.from_numpy(np.stack([sample[name] for sample in samples])) for name in self._fields}
        if self._device.type == "cuda":
            batch = {name: tensor.pin_memory() for name, tensor in batch.items()}
        return batch

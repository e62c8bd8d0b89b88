"""From documents to GPT samples: epochs, the order of documents, where samples start, the order of samples.

Documents are shuffled, read one after another as a single stream of tokens, and the stream is cut into samples of
``seq_length + 1`` tokens, each of which starts with the last token of the one before. The samples are then shuffled.
For a given seed all of it equals Megatron-LM's ``GPTDataset``, bit for bit.
"""

from dataclasses import dataclass

import numpy as np

from megalite.data.index_builders import build_sample_index, shuffle

FINAL_EPOCH_SHARE = 0.80
"""A last epoch of which less than this share is needed is shuffled apart, so that those before it are read in full."""


@dataclass(frozen=True)
class Packing:
    """How often a corpus is read and how many samples that gives."""

    tokens_per_epoch: int
    seq_length: int
    num_epochs: int
    separate_final_epoch: bool
    whole: bool = False
    """The tokens after the last full sample are a sample too."""

    @property
    def num_samples(self) -> int:
        """Samples that all epochs hold, at least as many as were asked for."""
        return self.samples_in(self.num_epochs)

    @property
    def samples_before_final_epoch(self) -> int:
        """Samples that end before the last epoch begins."""
        return self.samples_in(self.num_epochs - 1)

    def samples_in(self, num_epochs: int) -> int:
        """Samples that ``num_epochs`` epochs hold; one token is left over, as the last label."""
        labels = max(0, num_epochs * self.tokens_per_epoch - 1)
        return -(-labels // self.seq_length) if self.whole else labels // self.seq_length


def plan_packing(tokens_per_epoch: int, seq_length: int, num_samples: int | None, whole: bool = False) -> Packing:
    """The fewest epochs that give ``num_samples`` samples; a single one when that is None. Needs a token at least.

    ``whole``, for a single epoch: the incomplete sample at its end counts.
    """
    if num_samples is None:
        return Packing(tokens_per_epoch, seq_length, 1, False, whole)
    tokens = num_samples * seq_length + 1
    packing = Packing(tokens_per_epoch, seq_length, max(1, -(-tokens // tokens_per_epoch)), False)
    in_final_epoch = num_samples - packing.samples_before_final_epoch
    separate = packing.num_epochs > 1 and in_final_epoch < int(FINAL_EPOCH_SHARE * packing.samples_in(1))
    return Packing(tokens_per_epoch, seq_length, packing.num_epochs, separate)


def build_indices(lengths: np.ndarray, begin: int, end: int, packing: Packing, seed: int) -> dict[str, np.ndarray]:
    """The three indices of the documents ``[begin, end)`` of a corpus whose document lengths are ``lengths`` (int32).

    ``document_index``: document numbers in reading order; ``sample_index`` ``[samples + 1, 2]``: see
    :func:`megalite.data.index_builders.build_sample_index`; ``shuffle_index``: which of those samples comes when.
    """
    random = random_state(seed)
    document_index = _document_index(begin, end, packing, random)
    sample_index = build_sample_index(lengths, document_index, packing.num_samples, packing.seq_length)
    shuffle_index = _shuffle_index(packing, random)
    return {"document_index": document_index, "sample_index": sample_index, "shuffle_index": shuffle_index}


def random_state(seed: int) -> np.random.RandomState:
    """Numpy's frozen Mersenne Twister stream for a seed of up to 63 bits; below 2^32 the one Megatron-LM uses."""
    return np.random.RandomState(seed if seed < 1 << 32 else [seed & 0xFFFFFFFF, seed >> 32])


def document_index_dtype(num_documents: int) -> np.dtype:
    """int32 as long as document numbers fit."""
    return np.dtype(np.int32 if num_documents <= np.iinfo(np.int32).max else np.int64)


def shuffle_index_dtype(num_samples: int) -> np.dtype:
    """uint32 as long as sample numbers fit (Megatron-LM's bound)."""
    return np.dtype(np.uint32 if num_samples < np.iinfo(np.uint32).max - 1 else np.int64)


def _document_index(begin: int, end: int, packing: Packing, random: np.random.RandomState) -> np.ndarray:
    index = np.tile(np.arange(begin, end, dtype=document_index_dtype(end)), packing.num_epochs)
    shuffled_together = len(index) - (end - begin if packing.separate_final_epoch else 0)
    _shuffle_parts(index, shuffled_together, random)
    return index


def _shuffle_index(packing: Packing, random: np.random.RandomState) -> np.ndarray:
    index = np.arange(packing.num_samples, dtype=shuffle_index_dtype(packing.num_samples))
    shuffled_together = packing.samples_before_final_epoch if packing.separate_final_epoch else len(index)
    _shuffle_parts(index, shuffled_together, random)
    return index


def _shuffle_parts(index: np.ndarray, boundary: int, random: np.random.RandomState) -> None:
    shuffle(index[:boundary], random)
    if boundary < len(index):
        shuffle(index[boundary:], random)

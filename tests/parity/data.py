"""A small, fixed stream of samples for tests of training: no files, and masks uneven enough to catch a wrong mean."""

import numpy as np


class RandomTokens:
    """Dataset of ``size`` samples: random tokens, and masks that drop a third of the tokens, or all of some samples."""

    def __init__(self, seq_length: int, vocab_size: int, size: int = 100_000):
        self._seq_length, self._vocab_size, self._size = seq_length, vocab_size, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(index)
        text = random.integers(0, self._vocab_size, self._seq_length + 1)
        mask = (random.random(self._seq_length) < 2 / 3).astype(np.float32)
        if index % 7 == 3:
            mask[:] = 0
        return {
            "tokens": text[:-1],
            "labels": text[1:],
            "loss_mask": mask,
            "position_ids": np.arange(self._seq_length),
            "document_ids": np.cumsum(text[:-1] == 0) - (text[:-1] == 0),
        }

"""The part of the vocabulary that a rank holds, and the refusal of ids outside the vocabulary."""

from dataclasses import dataclass

import torch

from megalite.errors import DataError
from megalite.parallel.group import Group


@dataclass(frozen=True)
class VocabularyShard:
    """Rows ``[start, start + num_rows)`` of the padded vocabulary, of which the first ``num_real`` are tokens.

    The rest is padding: zero rows that no loss and no softmax sees. A rank may hold nothing but padding.
    """

    vocab_size: int
    """Of the whole vocabulary, without padding."""
    start: int
    num_rows: int

    @staticmethod
    def of(vocab_size: int, padded_size: int, group: Group) -> "VocabularyShard":
        """This rank's equal part of ``padded_size`` rows."""
        assert padded_size >= vocab_size and padded_size % group.size == 0, (
            f"{padded_size} rows for {vocab_size} tokens on {group.size} ranks"
        )
        num_rows = padded_size // group.size
        return VocabularyShard(vocab_size, group.rank * num_rows, num_rows)

    @property
    def num_real(self) -> int:
        return min(max(self.vocab_size - self.start, 0), self.num_rows)

    def local(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(row of each id on this rank, whether another rank holds it); the row is 0 where another one does."""
        rows = ids - self.start
        elsewhere = (rows < 0) | (rows >= self.num_rows)
        return rows.masked_fill_(elsewhere, 0), elsewhere

    def check(self, ids: torch.Tensor, what: str) -> None:
        """Refuse ids outside the vocabulary.

        On the CPU by a :class:`DataError` that names the id. On a GPU, where looking at a value would wait for the
        device, by a device-side assertion that ends the program at its next synchronisation.
        """
        valid = (ids >= 0) & (ids < self.vocab_size)
        if ids.device.type != "cpu":
            torch._assert_async(valid.all())
        elif not bool(valid.all()):
            wrong = int(ids[~valid].flatten()[0])
            raise DataError(
                f"{what} must be in [0, {self.vocab_size}), the vocabulary; given {wrong}: train with the tokenizer "
                "that made the data, or mend vocab_size."
            )

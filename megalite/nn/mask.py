"""Who may attend to whom."""

import torch


class DocumentStarts:
    """Where documents begin in the micro-batch at hand, found once for all layers of a rank."""

    def __init__(self) -> None:
        self._ids: torch.Tensor | None = None
        self._version = 0
        self._starts: torch.Tensor | None = None

    def of(self, batch: dict[str, torch.Tensor]) -> torch.Tensor | None:
        """For each token the position at which its document begins, the first that it may see: int64 [b, s]; None if
        documents do not matter, that is, if the batch has no ``document_ids`` [b, s] (equal, and next to each other,
        for the tokens of a document)."""
        ids = batch.get("document_ids")
        if ids is None:
            return None
        if ids is not self._ids or ids._version != self._version:
            positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
            begins = torch.ones_like(ids, dtype=torch.bool)
            begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
            self._starts = positions.where(begins, 0).cummax(dim=1).values
            self._ids, self._version = ids, ids._version
        return self._starts

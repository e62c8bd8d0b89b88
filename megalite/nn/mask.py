"""Who may attend to whom."""

import torch


def causal_mask(length: int, device: torch.device) -> torch.Tensor:
    """True where query i may see key j <= i: bool [length, length]."""
    positions = torch.arange(length, device=device)
    return positions.unsqueeze(1) >= positions


class DocumentMask:
    """The mask of the micro-batch at hand, made once for all layers of a rank that ask for it one after the other."""

    def __init__(self) -> None:
        self._ids: torch.Tensor | None = None
        self._version = 0
        self._mask: torch.Tensor | None = None

    def of(self, batch: dict[str, torch.Tensor]) -> torch.Tensor | None:
        """True where a query may see an earlier key of its own document: bool [b, 1, s, s]; None if documents do not
        matter, that is, if the batch has no ``document_ids`` [b, s]."""
        ids = batch.get("document_ids")
        if ids is None:
            return None
        if ids is not self._ids or ids._version != self._version:
            same = ids.unsqueeze(2) == ids.unsqueeze(1)
            self._mask = same.logical_and_(causal_mask(ids.shape[1], ids.device)).unsqueeze(1)
            self._ids, self._version = ids, ids._version
        return self._mask

"""Who may attend to whom."""

import torch


def causal_mask(length: int, device: torch.device) -> torch.Tensor:
    """True where query i may see key j <= i: bool [length, length]."""
    positions = torch.arange(length, device=device)
    return positions.unsqueeze(1) >= positions


def document_mask(batch: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """True where a query may see an earlier key of its own document: bool [b, 1, s, s]; None if documents do not matter."""
    if "document_ids" not in batch:
        return None
    ids = batch["document_ids"]
    same = ids.unsqueeze(2) == ids.unsqueeze(1)
    return (same & causal_mask(ids.shape[1], ids.device)).unsqueeze(1)

"""Tokens per byte of text: what turns a loss per token into bits per byte."""

from megalite.data.blend import Blend, normalized
from megalite.data.sidecar import Sidecar, read_sidecar


def tokens_per_byte(blend: Blend) -> float | None:
    """Tokens of the corpora of ``blend``, by the bytes of text that they came from.

    Taken from what preprocessing recorded beside the corpora: None where it is not there. A corpus divided by
    ``--split`` counts as a whole; several count by their weights in the blend, or by their sizes.
    """
    sidecars = [read_sidecar(prefix) for prefix in blend.prefixes]
    densities = [_density(sidecar) for sidecar in sidecars]
    if not densities or None in densities:
        return None
    weights = blend.weights or [sidecar.num_tokens for sidecar in sidecars]
    return 1.0 / sum(share / density for share, density in zip(normalized(weights), densities))


def _density(sidecar: Sidecar | None) -> float | None:
    return None if sidecar is None else sidecar.summary.get("tokens_per_byte") or None

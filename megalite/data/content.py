"""Which corpus this is, wherever it lies: a hash of what it holds."""

import hashlib

import numpy as np

from megalite.data.indexed import IndexedDataset
from megalite.data.reader import MmapReader

_BLOCKS = 16
_INDEX_BLOCK = 1 << 16
_TOKEN_BLOCK = 1 << 12


def content_fingerprint(corpus: IndexedDataset) -> str:
    """A hash of the sizes, the counts, and blocks spread evenly over both files.

    An index of up to 1 MiB is hashed whole, and no more than that of a larger one, so that a run over hundreds of
    corpora starts at once. Any change of the length of a document moves all offsets behind it.
    """
    digest = hashlib.sha256(corpus.header.pack())
    for reader, block in ((corpus.index, _INDEX_BLOCK), (corpus.tokens, _TOKEN_BLOCK)):
        digest.update(reader.size.to_bytes(8, "little"))
        for start, length in _blocks(reader, block):
            digest.update(reader.read(np.dtype(np.uint8), length, start))
    return digest.hexdigest()


def _blocks(reader: MmapReader, block: int) -> list[tuple[int, int]]:
    """(offset, length) of up to 16 blocks, the first and the last bytes of the file among them."""
    count = min(_BLOCKS, -(-reader.size // block))
    span = max(0, reader.size - block)
    return [(span * i // max(1, count - 1), min(block, reader.size)) for i in range(count)]

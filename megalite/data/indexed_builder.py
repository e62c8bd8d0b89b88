"""Writing a corpus: tokens go to disk as they come, a few bytes per document stay in memory.

Nothing that looks like a corpus exists before :meth:`IndexedDatasetBuilder.finalize`: tokens go to
``PREFIX.bin.partial``, which also serves as the lock against a second writer, and gets its name at the very end. An
interrupted run leaves the partial file, which the next one overwrites.
"""

import dataclasses
import os
import shutil
from array import array
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from megalite.data.indexed import DTYPES, Header, IndexedDataset, bin_path, idx_path, pointers
from megalite.data.locks import open_locked
from megalite.data.sidecar import Sidecar, sidecar_path, write_sidecar
from megalite.errors import DataError


class IndexedDatasetBuilder:
    """Writes the corpus ``PREFIX``. Use it as a context manager, which drops everything when the block fails.

    A document is a run of sequences: ``add_item`` adds a sequence to the open document and ``end_document`` closes
    it; ``add_document`` does both. ``dtype`` is one of the format's, usually ``indexed.optimal_dtype(vocab_size)``.
    """

    def __init__(self, prefix: str | os.PathLike[str], dtype: Any, multimodal: bool = False):
        self.prefix = os.fspath(prefix)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        if self.dtype not in DTYPES.values():
            raise DataError(
                f"the dtype of a corpus must be one of {', '.join(d.name for d in DTYPES.values())}; "
                f"given {np.dtype(dtype).name}."
            )
        self._lengths = array("i")
        self._document_indices = array("q", [0])
        self._modes = array("b") if multimodal else None
        self._partial = bin_path(self.prefix) + ".partial"
        Path(self.prefix).parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = open_locked(self._partial, wait=False)
        except BlockingIOError as error:
            raise DataError(
                f"{self._partial} must have one writer; another process is writing it: let that one end, or choose "
                "another prefix."
            ) from error
        os.ftruncate(descriptor, 0)
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)

    @property
    def num_documents(self) -> int:
        return len(self._document_indices) - 1

    @property
    def num_tokens(self) -> int:
        return self._file.tell() // self.dtype.itemsize

    def add_item(self, tokens: Any, mode: int = 0) -> None:
        """Add one sequence of ids (any 1-d array-like) to the open document."""
        self._write(tokens)
        self._append(len(tokens), mode)

    def end_document(self) -> None:
        """Close the open document, which may hold no sequence at all."""
        self._document_indices.append(len(self._lengths))

    def add_document(self, tokens: Any, lengths: Sequence[int], modes: Sequence[int] | None = None) -> None:
        """Add a document of ``len(lengths)`` sequences whose ids are ``tokens``, one sequence after another."""
        if sum(lengths) != len(tokens):
            raise DataError(
                f"the lengths of a document's sequences must sum to its {len(tokens)} tokens; given {list(lengths)}."
            )
        self._write(tokens)
        for length, mode in zip(lengths, modes or [0] * len(lengths), strict=True):
            self._append(length, mode)
        self.end_document()

    def add_documents(self, tokens: np.ndarray, lengths: np.ndarray, document_sequences: np.ndarray) -> None:
        """Add many documents at once, at no cost per document: all their ids, the length of each sequence (int32), and
        how many of the sequences each document holds.
        """
        if lengths.sum(dtype=np.int64) != len(tokens) or document_sequences.sum(dtype=np.int64) != len(lengths):
            raise DataError(
                f"the lengths of {len(lengths)} sequences must sum to the {len(tokens)} tokens, and the sequences "
                f"of {len(document_sequences)} documents to all sequences."
            )
        assert self._modes is None, "the sequences of a multimodal corpus have modes: use add_document"
        assert self._document_indices[-1] == len(self._lengths), "the open document must be ended first"
        self._write(tokens)
        starts = len(self._lengths) + np.cumsum(document_sequences, dtype=np.int64)
        self._lengths.frombytes(lengths.astype("=i4").tobytes())
        self._document_indices.frombytes(starts.astype("=i8").tobytes())

    def add_index(self, prefix: str | os.PathLike[str]) -> None:
        """Append the whole corpus ``prefix``."""
        other = IndexedDataset(prefix)
        if other.dtype != self.dtype:
            raise DataError(
                f"corpora of one merge must share their dtype: {other.prefix} has {other.dtype.name}, "
                f"{self.prefix} has {self.dtype.name}."
            )
        if (other.sequence_modes is None) != (self._modes is None):
            raise DataError(
                f"corpora of one merge must all be multimodal or none: {other.prefix} differs from {self.prefix}."
            )
        other.validate()
        self._document_indices.frombytes((other.document_indices[1:] + len(self._lengths)).astype("=i8").tobytes())
        self._lengths.frombytes(other.sequence_lengths.astype("=i4").tobytes())
        if self._modes is not None:
            self._modes.frombytes(other.sequence_modes.tobytes())
        with open(bin_path(other.prefix), "rb") as source:
            shutil.copyfileobj(source, self._file, 1 << 24)

    def finalize(self, sidecar: Sidecar | None = None) -> None:
        """Close an open document, write the index and give the files their names: the corpus exists from here on.

        ``sidecar`` says which tokenizer made the ids; its counts are filled in here.
        """
        if self._document_indices[-1] != len(self._lengths):
            self.end_document()
        index = idx_path(self.prefix) + ".partial"
        self._write_index(index)
        self._file.flush()
        os.fsync(self._file.fileno())
        # The old corpus goes first and the new tokens get their name last, so that at no moment do old and new files
        # pass for one corpus; and the lock, which is on the partial file, covers all of it.
        for old in (idx_path(self.prefix), sidecar_path(self.prefix), bin_path(self.prefix)):
            Path(old).unlink(missing_ok=True)
        os.replace(index, idx_path(self.prefix))
        if sidecar is not None:
            counts = {"num_documents": self.num_documents, "num_tokens": self.num_tokens}
            write_sidecar(self.prefix, dataclasses.replace(sidecar, **counts))
        os.replace(self._partial, bin_path(self.prefix))
        self._file.close()

    def abort(self) -> None:
        """Drop what was written."""
        if not self._file.closed:
            Path(self._partial).unlink(missing_ok=True)
            self._file.close()

    def __enter__(self) -> "IndexedDatasetBuilder":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.abort()

    def _append(self, length: int, mode: int) -> None:
        self._lengths.append(length)
        if self._modes is not None:
            self._modes.append(mode)

    def _write(self, tokens: Any) -> None:
        if not len(tokens):
            return
        ids = np.asarray(tokens)
        if self.dtype.kind in "iu":
            if ids.dtype.kind not in "iu":
                raise DataError(f"token ids of {self.prefix} must be integers; given {ids.dtype.name}.")
            limits = np.iinfo(self.dtype)
            for extreme in (int(ids.min()), int(ids.max())):
                if not max(limits.min, 0) <= extreme <= limits.max:
                    raise DataError(
                        f"token ids of {self.prefix} must lie in 0..{limits.max} to be stored as {self.dtype.name}; "
                        f"given {extreme}: check the tokenizer, or choose the dtype by its vocabulary size."
                    )
        self._file.write(ids.astype(self.dtype).tobytes())

    def _write_index(self, path: str) -> None:
        lengths = np.frombuffer(self._lengths, np.int32)
        with open(path, "wb") as file:
            file.write(Header(self.dtype, len(lengths), len(self._document_indices)).pack())
            file.write(lengths.astype("<i4").tobytes())
            file.write(pointers(lengths, self.dtype.itemsize).astype("<i8").tobytes())
            file.write(np.frombuffer(self._document_indices, np.int64).astype("<i8").tobytes())
            file.write((self._modes or array("b")).tobytes())
            file.flush()
            os.fsync(file.fileno())

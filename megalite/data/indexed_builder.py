"""Writing a corpus: everything goes to disk as it comes, so that memory does not grow with the corpus.

Nothing that looks like a corpus exists before :meth:`IndexedDatasetBuilder.finalize`: tokens go to
``PREFIX.bin.partial``, which also serves as the lock against a second writer, and gets its name at the very end; the
index grows in ``PREFIX.lengths.partial``, ``PREFIX.documents.partial`` and, of multimodal corpora,
``PREFIX.modes.partial``. An interrupted run leaves the partial files, which the next one overwrites, or continues from
a :class:`Mark`.
"""

import dataclasses
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Sequence

import numpy as np

from megalite.data.indexed import DTYPES, Header, IndexedDataset, bin_path, idx_path
from megalite.data.locks import open_locked
from megalite.data.sidecar import Sidecar, sidecar_path, write_sidecar
from megalite.data.spool import cut_to, open_spool
from megalite.errors import DataError

_COPY_BYTES = 1 << 20
_LONGEST = (1 << 31) - 1


@dataclass(frozen=True)
class Mark:
    """How much of a corpus was written at some moment, between two documents."""

    num_tokens: int
    num_sequences: int
    num_documents: int


class IndexedDatasetBuilder:
    """Writes the corpus ``PREFIX``. Use it as a context manager, which drops everything when the block fails.

    A document is a run of sequences: ``add_item`` adds a sequence to the open document and ``end_document`` closes
    it; ``add_document`` does both. ``dtype`` is one of the format's, usually ``indexed.optimal_dtype(vocab_size)``.
    ``resume`` continues the partial files of a builder of the same arguments from what :meth:`sync` returned there.
    """

    def __init__(
        self, prefix: str | os.PathLike[str], dtype: Any, multimodal: bool = False, resume: Mark | None = None
    ):
        self.prefix = os.fspath(prefix)
        self.dtype = np.dtype(dtype).newbyteorder("<")
        if self.dtype not in DTYPES.values():
            raise DataError(
                f"the dtype of a corpus must be one of {', '.join(d.name for d in DTYPES.values())}; "
                f"given {np.dtype(dtype).name}."
            )
        self._partial = bin_path(self.prefix) + ".partial"
        Path(self.prefix).parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = open_locked(self._partial, wait=False)
        except BlockingIOError as error:
            raise DataError(
                f"{self._partial} must have one writer; another process is writing it: let that one end, or choose "
                "another prefix."
            ) from error
        start = resume or Mark(0, 0, 0)
        self._num_sequences, self._num_documents = start.num_sequences, start.num_documents
        self._open_document = False
        with ExitStack() as opened:
            file = opened.enter_context(os.fdopen(descriptor, "r+b", buffering=_COPY_BYTES))
            self._file = cut_to(file, start.num_tokens * self.dtype.itemsize, self._partial)
            self._lengths = opened.enter_context(self._open_spool("lengths", 4 * start.num_sequences))
            self._document_indices = opened.enter_context(self._open_spool("documents", 8 * start.num_documents))
            self._modes = opened.enter_context(self._open_spool("modes", start.num_sequences)) if multimodal else None
            opened.pop_all()

    @property
    def num_documents(self) -> int:
        return self._num_documents

    @property
    def num_tokens(self) -> int:
        return self._file.tell() // self.dtype.itemsize

    def add_item(self, tokens: Any, mode: int = 0) -> None:
        """Add one sequence of ids (any 1-d array-like) to the open document."""
        self._check_length(len(tokens))
        self._write(tokens)
        self._append(len(tokens), mode)

    def end_document(self) -> None:
        """Close the open document, which may hold no sequence at all."""
        self._document_indices.write(self._num_sequences.to_bytes(8, "little"))
        self._num_documents += 1
        self._open_document = False

    def add_document(self, tokens: Any, lengths: Sequence[int], modes: Sequence[int] | None = None) -> None:
        """Add a document of ``len(lengths)`` sequences whose ids are ``tokens``, one sequence after another."""
        if sum(lengths) != len(tokens):
            raise DataError(
                f"the lengths of a document's sequences must sum to its {len(tokens)} tokens; given {list(lengths)}."
            )
        self._check_length(max(lengths, default=0))
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
        assert not self._open_document, "the open document must be ended first"
        self._check_length(int(lengths.max(initial=0)))
        self._write(tokens)
        self._append_index(lengths, np.cumsum(document_sequences, dtype=np.int64))

    def add_index(self, prefix: str | os.PathLike[str]) -> None:
        """Append the whole corpus ``prefix``, whose ids may be of a narrower dtype."""
        other = IndexedDataset(prefix)
        if not np.can_cast(other.dtype, self.dtype):
            raise DataError(
                f"the dtype of a merged corpus must hold all ids of its parts: {other.prefix} has {other.dtype.name}, "
                f"{self.prefix} has {self.dtype.name}: choose a wider one."
            )
        if (other.sequence_modes is None) != (self._modes is None):
            raise DataError(
                f"corpora of one merge must all be multimodal or none: {other.prefix} differs from {self.prefix}."
            )
        other.validate()
        self._append_index(other.sequence_lengths, other.document_indices[1:])
        if self._modes is not None:
            self._modes.write(other.sequence_modes.tobytes())
        with open(bin_path(other.prefix), "rb") as source:
            if other.dtype == self.dtype:
                shutil.copyfileobj(source, self._file, _COPY_BYTES)
                return
            while (ids := np.fromfile(source, other.dtype, _COPY_BYTES // other.dtype.itemsize)).size:
                self._file.write(ids.astype(self.dtype).tobytes())

    def sync(self) -> Mark:
        """Bring all to the disk, so that a builder can continue from here whatever happens to this one."""
        assert not self._open_document, "a document that is still open cannot be continued"
        for file in self._files():
            file.flush()
            os.fsync(file.fileno())
        return Mark(self.num_tokens, self._num_sequences, self._num_documents)

    def finalize(self, sidecar: Sidecar | None = None) -> None:
        """Close an open document, write the index and give the files their names: the corpus exists from here on.

        ``sidecar`` says which tokenizer made the ids; its counts are filled in here.
        """
        if self._open_document:
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
        self._remove_spools()
        os.replace(self._partial, bin_path(self.prefix))
        self.suspend()

    def suspend(self) -> None:
        """Close the files and leave them, for a builder that continues them from a mark."""
        for file in self._files():
            file.close()

    def abort(self) -> None:
        """Drop what was written, unless it is finalized or suspended."""
        if not self._file.closed:
            self._remove_spools()
            Path(self._partial).unlink(missing_ok=True)
            self.suspend()

    def __enter__(self) -> "IndexedDatasetBuilder":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.abort()

    def _open_spool(self, name: str, size: int) -> BinaryIO:
        return open_spool(f"{self.prefix}.{name}.partial", size)

    def _files(self) -> list[BinaryIO]:
        return [self._file, *self._spools()]

    def _spools(self) -> list[BinaryIO]:
        return [file for file in (self._lengths, self._document_indices, self._modes) if file is not None]

    def _remove_spools(self) -> None:
        for file in self._spools():
            Path(file.name).unlink(missing_ok=True)

    def _check_length(self, longest: int) -> None:
        if longest > _LONGEST:
            raise DataError(
                f"a sequence of {self.prefix} must have at most {_LONGEST} tokens, for the format has 32 bits for "
                f"their number; given {longest}: divide the document."
            )

    def _append(self, length: int, mode: int) -> None:
        self._lengths.write(length.to_bytes(4, "little"))
        if self._modes is not None:
            self._modes.write(mode.to_bytes(1, "little", signed=True))
        self._num_sequences += 1
        self._open_document = True

    def _append_index(self, lengths: np.ndarray, document_ends: np.ndarray) -> None:
        """Add sequences, and documents that end behind so many of them."""
        self._lengths.write(lengths.astype("<i4").tobytes())
        self._document_indices.write((document_ends + self._num_sequences).astype("<i8").tobytes())
        self._num_sequences += len(lengths)
        self._num_documents += len(document_ends)

    def _write(self, tokens: Any) -> None:
        if not len(tokens):
            return
        ids = np.asarray(tokens)
        if self.dtype.kind in "iu" and not (ids.dtype == self.dtype and self.dtype.kind == "u"):  # where any id fits
            self._check_range(ids)
        self._file.write(memoryview(np.ascontiguousarray(ids, self.dtype)).cast("B"))

    def _check_range(self, ids: np.ndarray) -> None:
        if ids.dtype.kind not in "iu":
            raise DataError(f"token ids of {self.prefix} must be integers; given {ids.dtype.name}.")
        limits = np.iinfo(self.dtype)
        for extreme in (int(ids.min()), int(ids.max())):
            if not max(limits.min, 0) <= extreme <= limits.max:
                raise DataError(
                    f"token ids of {self.prefix} must lie in 0..{limits.max} to be stored as {self.dtype.name}; "
                    f"given {extreme}: check the tokenizer, or choose the dtype by its vocabulary size."
                )

    def _write_index(self, path: str) -> None:
        for file in self._spools():
            file.flush()
        with open(path, "wb") as index:
            index.write(Header(self.dtype, self._num_sequences, self._num_documents + 1).pack())
            _copy(self._lengths, index)
            _write_pointers(self._lengths, self.dtype.itemsize, index)
            index.write(bytes(8))  # the first document starts at sequence 0
            _copy(self._document_indices, index)
            if self._modes is not None:
                _copy(self._modes, index)
            index.flush()
            os.fsync(index.fileno())


def _copy(spool: BinaryIO, target: BinaryIO) -> None:
    spool.seek(0)
    shutil.copyfileobj(spool, target, _COPY_BYTES)


def _write_pointers(lengths: BinaryIO, itemsize: int, target: BinaryIO) -> None:
    """Byte offset of each sequence, from the spool of their lengths, a part at a time."""
    lengths.seek(0)
    start = 0
    while part := lengths.read(_COPY_BYTES):
        sizes = np.frombuffer(part, "<i4").astype(np.int64) * itemsize
        ends = start + np.cumsum(sizes)
        target.write((ends - sizes).astype("<i8").tobytes())
        start = int(ends[-1])

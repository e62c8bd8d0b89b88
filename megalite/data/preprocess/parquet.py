"""Parquet files, a group of rows a chunk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Sequence

from megalite.data.optional import require_package
from megalite.data.preprocess.records import InvalidRecord, Record, row_record
from megalite.data.preprocess.streams import STDIN
from megalite.errors import DataError

_ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class ParquetRows:
    """One row group. A record's line is its row, and rows are numbered from 1 within their file."""

    path: str
    group: int
    first_row: int
    num_lines: int
    num_bytes: int
    position: int

    def records(self, keys: Sequence[str]) -> Iterator[Record | InvalidRecord]:
        """Raises DataError when the rows cannot be read."""
        pyarrow = require_package("pyarrow", f"reading {self.path}, a Parquet file,", DataError)
        number = self.first_row
        try:
            with _open(Path(self.path)) as file:
                for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[self.group], columns=list(keys)):
                    columns = [batch.column(key).to_pylist() for key in keys]
                    for values in zip(*columns, strict=True):
                        yield row_record(number, values, keys)
                        number += 1
        except (pyarrow.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise DataError(
                f"{self.path} must be whole; after row {number - 1}: {reason}. Fetch or write the file again."
            ) from None


def parquet_chunks(path: Path, keys: Sequence[str], position: int) -> Iterator[ParquetRows]:
    """The row groups of ``path``. Raises DataError when it is no Parquet file, or has no column for one of ``keys``."""
    if path == STDIN:
        raise DataError("--input - cannot be Parquet, which is not read from one end to the other: name the file.")
    with _open(path) as file:
        missing = [key for key in keys if key not in file.schema_arrow.names]
        if missing:
            raise DataError(
                f"--json-keys must name columns of {path}; {', '.join(missing)} is none of "
                f"{', '.join(file.schema_arrow.names)}."
            )
        metadata, first_row = file.metadata, 1
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group)
            share = path.stat().st_size * (group + 1) // metadata.num_row_groups
            yield ParquetRows(str(path), group, first_row, rows.num_rows, rows.total_byte_size, position + share)
            first_row += rows.num_rows


def _open(path: Path) -> Any:
    parquet = require_package("pyarrow.parquet", f"reading {path}, a Parquet file,", DataError)
    pyarrow = require_package("pyarrow", f"reading {path}, a Parquet file,", DataError)
    try:
        return parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} must be a Parquet file; it cannot be read as one: {error}.") from None

"""Collect a corpus that every machine has: the source code of this Python interpreter's own standard library.

Writes JSON lines {"text": ..., "path": ...}, one file a line, to a training file and a held-out file. Tests and
installed packages are left out. The order is that of a hash of each path: a corpus cut off by --max-megabytes is then a
fair sample of the library, and so is the held-out part.
"""

import argparse
import hashlib
import json
import sys
import sysconfig
import tokenize
from pathlib import Path
from typing import Iterator

from megalite.errors import DataError
from megalite.log import echo, run_main

LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}


def source_files(root: Path) -> list[Path]:
    """The library's source files below ``root``, in the order of a hash of their relative paths."""
    files = [path for path in root.rglob("*.py") if not LEFT_OUT.intersection(path.relative_to(root).parts)]
    return sorted(files, key=lambda path: hashlib.sha256(path.relative_to(root).as_posix().encode()).digest())


def documents(root: Path) -> Iterator[dict[str, str]]:
    """Text and relative path of each source file that is neither empty nor unreadable."""
    for path in source_files(root):
        try:
            with tokenize.open(path) as file:  # minds the encoding that the file declares
                text = file.read()
        except (SyntaxError, UnicodeDecodeError):
            continue
        if text:
            yield {"text": text, "path": path.relative_to(root).as_posix()}


def sample(root: Path, max_bytes: float) -> list[dict[str, str]]:
    """Documents from the start of the order until they hold ``max_bytes`` of text."""
    chosen: list[dict[str, str]] = []
    num_bytes = 0
    for document in documents(root):
        if num_bytes >= max_bytes:
            break
        chosen.append(document)
        num_bytes += len(document["text"].encode("utf-8"))
    return chosen


def write(path: Path, chosen: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(document) + "\n" for document in chosen), encoding="utf-8")
    num_bytes = sum(len(document["text"].encode("utf-8")) for document in chosen)
    echo(f"{path}: {len(chosen)} source files of Python {sys.version.split()[0]}, {num_bytes / 1e6:.2f} MB of text")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True, help="JSON lines to train on")
    parser.add_argument("--heldout", type=Path, required=True, help="JSON lines never trained on")
    parser.add_argument(
        "--heldout-every", type=int, default=20, help="every how many files one is held out (default 20)"
    )
    parser.add_argument(
        "--max-megabytes", type=float, default=float("inf"), help="text at which to stop (default: none)"
    )
    parser.add_argument("--root", type=Path, default=Path(sysconfig.get_path("stdlib")), help="where the library lies")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    chosen = sample(arguments.root, arguments.max_megabytes * 1e6)
    if len(chosen) < arguments.heldout_every:
        raise DataError(
            f"--root must hold the source of a Python library, at least {arguments.heldout_every} files "
            f"(--heldout-every); {arguments.root} gave {len(chosen)}."
        )
    write(arguments.train, [document for number, document in enumerate(chosen, 1) if number % arguments.heldout_every])
    write(arguments.heldout, chosen[arguments.heldout_every - 1 :: arguments.heldout_every])


if __name__ == "__main__":
    run_main(main)

"""``PREFIX.json``: which tokenizer made a corpus, so that training with another one is refused.

Corpora written by other programs have none, and are taken as they are.
"""

import dataclasses
import json
import os
from dataclasses import dataclass, field
from typing import Any

from megalite.errors import DataError


@dataclass(frozen=True)
class Sidecar:
    """What the ids of a corpus mean."""

    tokenizer: str
    """Fingerprint of the tokenizer that made the ids."""
    vocab_size: int
    """Its number of ids, added tokens included."""
    eod: int | None
    """Its end-of-document id, or None when it has none."""
    append_eod: bool
    """Whether every document ends with ``eod``."""
    num_documents: int = 0
    num_tokens: int = 0
    summary: dict[str, Any] = field(default_factory=dict)
    """What else the program that wrote the corpus counted; for people, never compared."""


def sidecar_path(prefix: str) -> str:
    """The file beside a corpus that describes its tokenizer."""
    return prefix + ".json"


def write_sidecar(prefix: str, sidecar: Sidecar) -> None:
    """Write ``PREFIX.json``, whole or not at all."""
    partial = sidecar_path(prefix) + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(sidecar), file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, sidecar_path(prefix))


def read_sidecar(prefix: str) -> Sidecar | None:
    """The description beside a corpus, or None where there is none."""
    path = sidecar_path(prefix)
    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return Sidecar(**json.load(file))
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path} must be a description written beside the corpus by megalite; {error}: write the corpus "
            "again, or remove the file to go without it."
        ) from error


def check_tokenizer(prefix: str, vocab_size: int, eod: int | None, tokenizer: str | None = None) -> None:
    """Refuse a corpus whose ids were made by another tokenizer than the one given; one without a description passes."""
    sidecar = read_sidecar(prefix)
    if sidecar is None:
        return
    compared = [("vocabulary size", sidecar.vocab_size, vocab_size), ("end-of-document id", sidecar.eod, eod)]
    if tokenizer is not None:
        compared.append(("tokenizer fingerprint", sidecar.tokenizer, tokenizer))
    differing = [f"{what} {stored} (now {given})" for what, stored, given in compared if stored != given]
    if differing:
        raise DataError(
            f"{prefix} must be read with the tokenizer that wrote it, which has {', '.join(differing)}: give that "
            "tokenizer, or binarize the text again."
        )

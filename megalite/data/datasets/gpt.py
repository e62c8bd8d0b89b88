"""Samples for causal language models: ``seq_length`` tokens, and as labels the tokens one position on."""

import functools
from dataclasses import asdict, dataclass
from typing import Callable

import numpy as np

from megalite.data.cache import Arrays
from megalite.data.dataset import Part, Request, Sample, digest
from megalite.data.packing import Packing, build_indices, plan_packing
from megalite.errors import ConfigError, DataError
from megalite.log import logger
from megalite.native import native, reason


@dataclass(frozen=True)
class SampleRules:
    """What happens at the end of a document in a sample. The end-of-document token belongs to the document it ends."""

    seq_length: int
    eod: int | None
    reset_position_ids: bool = False
    document_ids: bool = False
    eod_mask_loss: bool = False

    @staticmethod
    def from_request(request: Request) -> "SampleRules":
        data, eod = request.data, request.vocabulary.eod
        if eod is None and (data.reset_position_ids or data.reset_attention_mask or data.eod_mask_loss):
            raise ConfigError(
                "--reset-position-ids, --reset-attention-mask and --eod-mask-loss need a tokenizer with an "
                "end-of-document token; that of this run has none: leave them out, or give it one and binarize again."
            )
        return SampleRules(
            request.seq_length, eod, data.reset_position_ids, data.reset_attention_mask, data.eod_mask_loss
        )


def assemble(text: np.ndarray, rules: SampleRules) -> Sample:
    """A sample from up to ``seq_length + 1`` consecutive ids; what is missing at the end is padding, out of the loss.

    ``tokens``, ``labels``, ``position_ids`` and, when asked for, ``document_ids`` (the documents of the sample, counted
    from 0) are int64 ``[seq_length]``; ``loss_mask`` is float32. Padding is known by its place, not by an id, so the
    genuine end-of-document tokens of a tokenizer that pads with the same id keep their loss.
    """
    length = rules.seq_length
    padded = np.zeros(length + 1, np.int64)
    padded[: len(text)] = text
    tokens, labels = padded[:-1], padded[1:]
    loss_mask = np.ones(length, np.float32)
    loss_mask[max(0, len(text) - 1) :] = 0
    is_eod = np.zeros(length, bool)
    is_eod[: len(text)] = tokens[: len(text)] == rules.eod
    if rules.eod_mask_loss:
        loss_mask[is_eod] = 0
    position_ids = np.arange(length, dtype=np.int64)
    if rules.reset_position_ids:
        starts = np.where(np.roll(is_eod, 1), position_ids, 0)  # what is rolled in at position 0 starts there anyway
        position_ids = position_ids - np.maximum.accumulate(starts)
    sample = {"tokens": tokens, "labels": labels, "loss_mask": loss_mask, "position_ids": position_ids}
    if rules.document_ids:
        sample["document_ids"] = np.cumsum(is_eod) - is_eod
    return sample


class GPTDataset:
    """The samples of one part of a corpus, in shuffled order. ``len`` may exceed the number asked for."""

    def __init__(self, part: Part, num_samples: int | None, request: Request):
        self.part, self.rules, self._wanted = part, SampleRules.from_request(request), num_samples
        self._packing = packing = plan_packing(part.num_tokens, request.seq_length, num_samples, part.whole)
        key = {
            "kind": "gpt",
            "content": part.content,
            "begin": part.begin,
            "end": part.end,
            "seed": request.seed,
            **asdict(packing),
        }
        build = functools.partial(_build, part, packing, request.seed)
        self.indices = request.cache_for(part.corpus.prefix).get(f"gpt-{part.split}", key, build)
        self.fingerprint = digest({**key, **asdict(self.rules)})

    def __len__(self) -> int:
        return self._packing.num_samples

    def __getitem__(self, index: int) -> Sample:
        return assemble(self.ids(index), self.rules)

    def padding(self) -> Sample:
        return assemble(np.empty(0, np.int64), self.rules)

    def preparations(self) -> list[Callable[[], None]]:
        _report(self.part, self._packing, self._wanted)  # Here, and not in a thread: in one order in every log.
        return [self.indices.prepare]

    def ids(self, index: int) -> np.ndarray:
        """The ids of sample ``index``: usually ``seq_length + 1``, across documents; fewer in the last one of a part
        that is read whole."""
        if not 0 <= index < len(self):
            raise IndexError(f"the {self.part} has {len(self)} samples; asked for number {index}")
        document_index, sample_index = self.indices["document_index"], self.indices["sample_index"]
        number = int(self.indices["shuffle_index"][index])
        (first, start), (last, end) = sample_index[number].tolist(), sample_index[number + 1].tolist()
        parts = []
        for position in range(first, last + 1):
            length = end + 1 - start if position == last else None
            parts.append(self.part.corpus.get(int(document_index[position]), start, length))
            start = 0
        return np.concatenate(parts)


def build(part: Part, num_samples: int | None, request: Request) -> GPTDataset:
    """The GPT samples of ``part``: at least ``num_samples``, in as many epochs as that takes, or one epoch's if None.

    Raises :class:`DataError` when there are not enough tokens, and when the tokens are not integers.
    """
    corpus = part.corpus
    if corpus.dtype.kind not in "iu":
        raise DataError(f"token ids must be integers; {corpus.prefix} holds {corpus.dtype.name}: it is no text corpus.")
    needed = 1 if num_samples is not None else 2 if part.whole else request.seq_length + 1
    if part.num_tokens < needed:
        raise DataError(
            f"the {part} must have at least {needed} tokens; it has {part.num_tokens}: give more data, another "
            "--split or a shorter --seq-length."
        )
    return GPTDataset(part, num_samples, request)


def _build(part: Part, packing: Packing, seed: int) -> Arrays:
    path = "in C++" if native() else f"in numpy (the native module is {reason()})"
    logger.info(f"computing the order of samples of the {part}, {path}")
    part.corpus.validate()
    return build_indices(part.corpus.sequence_lengths, part.begin, part.end, packing, seed)


def _report(part: Part, packing: Packing, num_samples: int | None) -> None:
    per_epoch = packing.samples_in(1)
    wanted = per_epoch if num_samples is None else num_samples
    logger.info(
        f"{part}: {part.num_tokens:,} tokens, {per_epoch:,} samples of {packing.seq_length} an epoch; "
        f"{wanted:,} wanted: {packing.num_epochs} epoch{'s' if packing.num_epochs > 1 else ''}"
    )
    if packing.num_epochs > 1:
        # Every rank comes here with the same numbers; one voice is enough.
        times = wanted * packing.seq_length / part.num_tokens
        logger.info(
            f"warning: the {part} is read {times:.1f} times over to give {wanted:,} samples of "
            f"{packing.seq_length} tokens."
        )

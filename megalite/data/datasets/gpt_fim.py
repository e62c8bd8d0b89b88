"""GPT samples in which documents are rearranged for filling in the middle: ``--fim-data``.

Which documents, and where they are cut, is a function of the seed and the number of the sample in its corpus: it
depends neither on who reads the sample nor on what was read before.
"""

import dataclasses
import functools
from dataclasses import asdict
from typing import Callable

import numpy as np

from megalite.data.dataset import Part, Request, Sample, digest
from megalite.data.datasets import gpt
from megalite.data.fim import Codec, Draws, FimRules, fill_in_the_middle
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import ConfigError


class GPTFIMDataset:
    """The samples of a :class:`megalite.data.datasets.gpt.GPTDataset`, rearranged."""

    def __init__(self, plain: gpt.GPTDataset, rules: FimRules, codec: Codec):
        self._plain, self._rules, self._codec = plain, rules, codec
        self._key = f"fim/{plain.fingerprint}"
        self.fingerprint = digest([self._key, asdict(rules)])

    def __len__(self) -> int:
        return len(self._plain)

    def __getitem__(self, index: int) -> Sample:
        ids = self._plain.ids(index).astype(np.int64)
        return gpt.assemble(
            fill_in_the_middle(ids, self._rules, self._codec, Draws(self._key, index)), self._plain.rules
        )

    def padding(self) -> Sample:
        return self._plain.padding()

    def preparations(self) -> list[Callable[[], None]]:
        return self._plain.preparations()


def build(part: Part, num_samples: int | None, request: Request) -> GPTFIMDataset:
    """Like :func:`megalite.data.datasets.gpt.build`.

    Raises :class:`ConfigError` unless the flags give a tokenizer that knows the tokens which separate the parts.
    """
    if request.data.tokenizer_type is None:
        raise ConfigError(
            "fim_data needs a tokenizer, for it cuts text between characters; given none: add --tokenizer-type and its "
            "files."
        )
    vocab_size = request.vocabulary.vocab_size - 1  # Only a NullTokenizer asks: without its end-of-document token.
    options = TokenizerOptions.from_config(request.data, vocab_size)
    codec = _tokenizer(dataclasses.replace(options, tokenizer_hf_no_include_special_tokens=True))
    return GPTFIMDataset(gpt.build(part, num_samples, request), _rules(request, codec), codec)


@functools.lru_cache(maxsize=1)
def _tokenizer(options: TokenizerOptions) -> Codec:
    """One for all corpora of a run, since building it may take a second."""
    return build_tokenizer(options)


def _rules(request: Request, codec: Codec) -> FimRules:
    data = request.data
    return FimRules(
        rate=data.fim_rate,
        spm_rate=data.fim_spm_rate,
        prefix=_token_id(codec, "fim_prefix_token", data.fim_prefix_token),
        middle=_token_id(codec, "fim_middle_token", data.fim_middle_token),
        suffix=_token_id(codec, "fim_suffix_token", data.fim_suffix_token),
        eod=request.vocabulary.eod,
        border=None if data.fim_split_sample is None else _token_id(codec, "fim_split_sample", data.fim_split_sample),
        fragment_rate=data.fim_fragment_rate or 0.0,
        no_prefix=data.fim_no_prefix,
    )


def _token_id(codec: Codec, flag: str, text: str) -> int:
    ids = codec.encode(text)
    if len(ids) != 1:
        raise ConfigError(
            f"{flag} must be a single token of the tokenizer; {text!r} is {len(ids)} of them: name a token that it "
            "has, or add this one to the tokenizer."
        )
    return ids[0]

r"""What tiktoken files leave unsaid: the patterns that split text, and the special tokens of published encodings.

The regular expressions are part of each encoding's definition (openai/tiktoken, Llama 3's model card, Megatron-LM's
``--tiktoken-pattern``); another one gives other ids.
"""

from typing import Mapping, NamedTuple

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PATTERNS: Mapping[str, str] = {
    "v1": r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "v2": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""Megatron-LM's ``--tiktoken-pattern``."""


class KnownEncoding(NamedTuple):
    """How the ranks of a published encoding are used."""

    pattern: str
    special_tokens: Mapping[str, int]
    eos: str


def _llama3() -> KnownEncoding:
    """256 special tokens after 128000 ranks; most are in reserve."""
    names = {
        0: "begin_of_text", 1: "end_of_text", 2: "reserved_special_token_0", 3: "reserved_special_token_1",
        4: "finetune_right_pad_id", 5: "reserved_special_token_2", 6: "start_header_id", 7: "end_header_id",
        8: "eom_id", 9: "eot_id", 10: "python_tag",
    }  # fmt: skip
    tokens = {f"<|{names.get(n, f'reserved_special_token_{n - 8}')}|>": 128000 + n for n in range(256)}
    return KnownEncoding(_CL100K, tokens, "<|end_of_text|>")


_ENDOFTEXT = "<|endoftext|>"
ENCODINGS: Mapping[str, KnownEncoding] = {
    "r50k_base": KnownEncoding(_GPT2, {_ENDOFTEXT: 50256}, _ENDOFTEXT),
    "p50k_base": KnownEncoding(_GPT2, {_ENDOFTEXT: 50256}, _ENDOFTEXT),
    "cl100k_base": KnownEncoding(
        _CL100K,
        {
            _ENDOFTEXT: 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
        _ENDOFTEXT,
    ),
    "o200k_base": KnownEncoding(_O200K, {_ENDOFTEXT: 199999, "<|endofprompt|>": 200018}, _ENDOFTEXT),
    "llama3": _llama3(),
}

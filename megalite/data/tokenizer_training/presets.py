"""The special tokens of well-known models: their ids, their roles, and which of them stand around a text."""

from dataclasses import dataclass
from typing import Mapping, Sequence

from tokenizers import AddedToken, Tokenizer, processors


@dataclass(frozen=True)
class Preset:
    """``tokens`` have the ids from 0 on; ``roles`` maps what transformers calls a role (``eos_token``) to one of them.

    ``single`` and ``pair`` are templates of one text and of two, empty when nothing stands around them.
    ``num_sentinels`` tokens <extra_id_N> have the highest ids, <extra_id_0> the highest of all.
    """

    tokens: tuple[str, ...]
    roles: Mapping[str, str]
    single: str = ""
    pair: str = ""
    num_sentinels: int = 0

    @property
    def sentinels(self) -> list[str]:
        return [f"<extra_id_{number}>" for number in reversed(range(self.num_sentinels))]

    @property
    def unknown(self) -> str | None:
        """The token of what the vocabulary cannot spell; None where only the end of a document would serve."""
        unknown = self.roles.get("unk_token")
        return None if unknown == self.roles.get("eos_token") else unknown


def _roles(**roles: str) -> dict[str, str]:
    return {f"{role}_token": token for role, token in roles.items()}


PRESETS: Mapping[str, Preset] = {
    "gpt2": Preset(("<|endoftext|>",), _roles(bos="<|endoftext|>", eos="<|endoftext|>", unk="<|endoftext|>")),
    "roberta": Preset(
        ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
        _roles(bos="<s>", cls="<s>", eos="</s>", sep="</s>", pad="<pad>", unk="<unk>", mask="<mask>"),
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
    ),
    "t5": Preset(
        ("<pad>", "</s>", "<unk>"),
        _roles(pad="<pad>", eos="</s>", unk="<unk>"),
        single="$A </s>",
        pair="$A </s> $B </s>",
        num_sentinels=100,
    ),
    "bert": Preset(
        ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        _roles(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]"),
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    ),
}


def own_tokens(tokens: Sequence[str]) -> Preset:
    """Tokens of the user's, of which the first begins and ends documents, as GPT-2's only one does."""
    return Preset(tuple(tokens), _roles(bos=tokens[0], eos=tokens[0], unk=tokens[0]))


def add_special_tokens(tokenizer: Tokenizer, preset: Preset) -> None:
    """Make the tokens of ``preset`` special in a trained ``tokenizer``, and put them around texts."""
    # A mask swallows the space in front of it, as RoBERTa's does.
    mask = preset.roles.get("mask_token") if "<mask>" in preset.tokens else None
    tokens = [*preset.tokens, *preset.sentinels]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False, lstrip=token == mask) for token in tokens]
    )
    if preset.single:
        ids = [(token, tokenizer.token_to_id(token)) for token in preset.tokens]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=preset.single, pair=preset.pair, special_tokens=ids
        )

"""Does a converted model compute the same? Logits of real tokens in float32, ours and those of transformers."""

from pathlib import Path

import torch

from megalite import plugins
from megalite.convert.extras import CONFIG_JSON
from megalite.convert.source import Source
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import CheckpointError
from megalite.log import echo
from megalite.nn.context import LayerContext
from megalite.state import Box

_NUM_TOKENS = 64
_TOLERANCE = 1e-4
"""Of the largest logit: far above float32's rounding, far below what a wrong weight does."""
_TEXT = (
    "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse, and "
    "nothing particular to interest me on shore, I thought I would sail about a little and see the watery part of the "
    "world. It is a way I have of driving off the spleen and regulating the circulation."
)


def verify(source: Source, target: Source, same_dtype: bool = True) -> None:
    """Compare the logits of two checkpoints, and of each that is a Hugging Face directory with those of transformers.

    Raises :class:`CheckpointError` where they differ by more than rounding; between dtypes nothing is demanded.
    """
    tokens, what = sample_tokens(source)
    ours = logits(source, tokens)
    echo(f"{tokens.shape[1]} tokens of {what}; largest logit {ours.abs().max():.4g}")
    checked = logits(target, tokens)
    _compare(ours, checked, f"{source.directory} and {target.directory}", demanded=same_dtype)
    for own, computed in ((source, ours), (target, checked)):
        if (own.directory / CONFIG_JSON).is_file():
            theirs = transformers_logits(own.directory, tokens)
            if theirs is None:
                echo(f"{own.directory} by transformers: not compared, which needs `pip install transformers`")
            else:
                _compare(computed, theirs, f"{own.directory} by megalite and by transformers", demanded=True)


def _compare(first: torch.Tensor, second: torch.Tensor, what: str, demanded: bool) -> None:
    difference = (first - second).abs().max().item()
    echo(f"{what}: largest logit difference {difference:.3g}")
    allowed = _TOLERANCE * max(1.0, first.abs().max().item())
    if demanded and not difference <= allowed:
        raise CheckpointError(
            f"{what} must give the same logits, up to {allowed:.2g}; they differ by {difference:.3g}."
        )


def sample_tokens(source: Source) -> tuple[torch.Tensor, str]:
    """Token ids [1, s] to compare with, and what they are: English text where the checkpoint has its tokenizer."""
    model, files = source.config.model, source.extras
    length = min(_NUM_TOKENS, model.num_positions)
    options = None
    if "tokenizer.json" in files:
        path = str(files["tokenizer.json"])
        options = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=path)
    elif "vocab.json" in files and "merges.txt" in files:
        vocabulary, merges = str(files["vocab.json"]), str(files["merges.txt"])
        options = TokenizerOptions(tokenizer_type="GPT2BPETokenizer", vocab_file=vocabulary, merge_file=merges)
    if options is not None:
        return torch.tensor([build_tokenizer(options).encode(_TEXT)[:length]]), "English text"
    # A step that is no divisor of any usual vocabulary: ids from all over it.
    return (torch.arange(1, length + 1) * 7919 % model.vocab_size)[
        None
    ], "ids from all over the vocabulary (no tokenizer)"


@torch.no_grad()
def logits(source: Source, tokens: torch.Tensor) -> torch.Tensor:
    """Float32 logits [s, vocabulary] of a checkpoint for token ids [1, s]. One unit of the model is in memory at a
    time."""
    model = source.config.model
    units = plugins.load("megalite.models", model.model, "--model").units(model)
    batch = {"tokens": tokens, "position_ids": torch.arange(tokens.shape[1])[None]}
    carry: dict[str, torch.Tensor] = {}
    for unit in units:
        module = unit.build(LayerContext(device=torch.device("meta")), {}).eval()
        _load(module, source)
        if unit.kind == "head":
            return module.logits(carry)[:, 0, : model.vocab_size]
        carry = module(carry, batch)
    raise AssertionError("a model ends in its head")


def _load(module: torch.nn.Module, source: Source) -> None:
    """Give a module that was built without memory its parameters, in float32."""
    for name, parameter in list(module.named_parameters()):
        spec = parameter.spec
        held = torch.zeros(parameter.shape)
        source.fill(spec.name, Box.whole(spec.global_shape), held[tuple(slice(size) for size in spec.global_shape)])
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, torch.nn.Parameter(held, requires_grad=False))


@torch.no_grad()
def transformers_logits(directory: Path, tokens: torch.Tensor) -> torch.Tensor | None:
    """The same by transformers, from a Hugging Face directory; None where transformers is not installed."""
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        return None
    model = AutoModelForCausalLM.from_pretrained(directory, local_files_only=True).float().eval()
    return model(tokens).logits[0]

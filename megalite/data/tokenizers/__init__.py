"""Tokenizers: text to token ids and back. The directory is the registry of ``--tokenizer-type``.

Megatron's name of a type, without its suffix "Tokenizer" and in lower case, is the file that builds it:
``HuggingFaceTokenizer`` is ``huggingface.py``, and a new file ``foo.py`` with ``build(options) -> Tokenizer`` makes
``--tokenizer-type FooTokenizer`` work.
"""

from megalite.data.tokenizers._base import SpecialTokens, Tokenizer, TokenizerOptions
from megalite.errors import TokenizerError
from megalite.plugins import available, load


def build_tokenizer(options: TokenizerOptions) -> Tokenizer:
    """Build the tokenizer that ``options`` describe.

    Raises ConfigError for an unknown type, and TokenizerError for a missing or damaged file; no file is ever created.
    """
    if options.tokenizer_type is None:
        types = ", ".join(available(__name__))
        raise TokenizerError(
            f"--tokenizer-type must say how text becomes tokens; none was given; choose from: {types}."
        )
    name = options.tokenizer_type.removesuffix("Tokenizer").lower()
    return load(__name__, name, "--tokenizer-type").build(options)


__all__ = ["SpecialTokens", "Tokenizer", "TokenizerOptions", "build_tokenizer"]

"""``--tokenizer-type HuggingFaceTokenizer``: any ``tokenizer.json``, read by the `tokenizers` library.

Neither transformers nor the network is needed. Special tokens that occur in a text become their ids, and the tokens
that the tokenizer puts around each text (``<s>``, ``[CLS]``) are kept, both as in Megatron-LM.
"""

from pathlib import Path
from typing import Iterator

import tokenizers

from megalite.data.tokenizers._base import (
    SpecialTokens,
    Tokenizer,
    TokenizerOptions,
    find_sentinels,
    fingerprint,
    read_json,
)
from megalite.data.tokenizers._rust import RustTokenizer
from megalite.errors import TokenizerError

ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")
# What the end-of-document token is called when no file beside tokenizer.json says it.
EOD_CANDIDATES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]")


def build(options: TokenizerOptions) -> Tokenizer:
    path = _tokenizer_file(options.tokenizer_model)
    content = read_json(path)
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(
            f"--tokenizer-model must be a tokenizer.json; {path} cannot be read as one: {error}."
        ) from None
    identity = {key: value for key, value in content.items() if key not in ("truncation", "padding")}
    add_special_tokens = not options.tokenizer_hf_no_include_special_tokens
    tokenizer = RustTokenizer(backend, "HuggingFaceTokenizer", fingerprint(identity), add_special_tokens)
    tokenizer.eod = _find_eod(tokenizer, path, options.eod_token)
    tokenizer.special = _special_tokens(tokenizer, path)
    return tokenizer


def _tokenizer_file(model: str | None) -> Path:
    wanted = "a tokenizer.json, or the directory that holds it"
    if model is None:
        raise TokenizerError(f"--tokenizer-model must be given: {wanted}.")
    path = Path(model) / "tokenizer.json" if Path(model).is_dir() else Path(model)
    if not path.is_file():
        raise TokenizerError(
            f"--tokenizer-model must be {wanted}; given {model!r}, but there is no file {path}. Nothing is fetched "
            "from a hub: download the tokenizer first (in transformers: "
            "AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR))."
        )
    return path


def _find_eod(tokenizer: RustTokenizer, path: Path, eod_token: str | None) -> int | None:
    source, token = "--eod-token", eod_token
    if token is None:
        source, token = _declared_eod(path)
    if token is None:
        ids = [tokenizer.token_id(candidate) for candidate in EOD_CANDIDATES]
        known = [token_id for token_id in ids if token_id is not None]
        return known[0] if len(known) == 1 else None
    if tokenizer.token_id(token) is None:
        raise TokenizerError(
            f"The end-of-document token must be a token of {path}; {source} says {token!r}, which is not one. "
            "Name another with --eod-token."
        )
    return tokenizer.token_id(token)


def _declared_eod(path: Path) -> tuple[str, str | None]:
    """File and text of the end-of-sequence token that the files beside ``tokenizer.json`` declare.

    A tokenizer without one, such as BERT's, ends a text with its separator.
    """
    for file, declared in _declarations(path):
        for role in ("eos", "sep"):
            if role in declared:
                return str(file), declared[role]
    return "", None


def _declarations(path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Each file beside ``tokenizer.json`` that says which token has which role, and what it says.

    Files beside a ``tokenizer.json`` of any other name belong to some other tokenizer.
    """
    names = ("tokenizer_config.json", "special_tokens_map.json") if path.name == "tokenizer.json" else ()
    for file in map(path.with_name, names):
        content = read_json(file) if file.is_file() else {}
        tokens = {role: content.get(f"{role}_token") for role in ROLES}
        texts = {role: token.get("content") if isinstance(token, dict) else token for role, token in tokens.items()}
        yield file, {role: text for role, text in texts.items() if text is not None}


def _special_tokens(tokenizer: RustTokenizer, path: Path) -> SpecialTokens:
    texts: dict[str, str] = {}
    for _, declared in _declarations(path):
        texts = declared | texts  # the first file that declares a role decides
    ids = {role: tokenizer.token_id(text) for role, text in texts.items()}
    return SpecialTokens(**ids, sentinels=find_sentinels(tokenizer.token_id))

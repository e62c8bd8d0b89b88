"""BERT's tokenizer from its ``vocab.txt``, as the `tokenizers` library has it.

As in BERT's own tokenizer, nothing is put around a text, and one that quotes ``[SEP]`` is encoded as ordinary
characters. A word of more than 100 characters is unknown, as in transformers. Texts end with ``[SEP]``, for lack of an
end-of-sequence token.
"""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from megalite.data.tokenizers._base import (
    SpecialTokens,
    TokenizerOptions,
    extra_tokens,
    find_eod,
    find_sentinels,
    fingerprint,
    require_file,
)
from megalite.data.tokenizers._rust import RustTokenizer
from megalite.errors import TokenizerError

NEEDED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def build_wordpiece(options: TokenizerOptions, lowercase: bool) -> RustTokenizer:
    """The tokenizer of ``--vocab-file``; lower-casing also takes accents away, as in BERT."""
    path = require_file(options.vocab_file, "--vocab-file", "vocab.txt of a BERT tokenizer")
    extra = extra_tokens(options)
    vocab = _read_vocab(path, extra)
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    tokenizer = RustTokenizer(backend, options.tokenizer_type, fingerprint(["WordPiece", lowercase, list(vocab)]))
    token_id = tokenizer.token_id
    cls, sep = token_id("[CLS]"), token_id("[SEP]")
    roles = {role: token_id(f"[{role.upper()}]") for role in ("pad", "unk", "mask")}
    tokenizer.special = SpecialTokens(cls=cls, sep=sep, bos=cls, eos=sep, **roles, sentinels=find_sentinels(token_id))
    tokenizer.eod = find_eod(token_id, options.eod_token, sep, path)
    return tokenizer


def _read_vocab(path: Path, extra: list[str]) -> dict[str, int]:
    try:
        # Not splitlines: a vocabulary may hold characters that are line ends to Unicode.
        lines = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"--vocab-file must be text in UTF-8, a token a line; {path} is not: {error}.") from None
    tokens = lines[:-1] if lines[-1] == "" else lines
    vocab: dict[str, int] = {}
    for number, token in enumerate([*tokens, *extra]):
        if token in vocab:
            raise TokenizerError(
                f"--vocab-file must hold each token once; {path} has {token!r} on lines {vocab[token] + 1} and "
                f"{number + 1}."
            )
        vocab[token] = number
    missing = [token for token in NEEDED if token not in vocab]
    if missing:
        raise TokenizerError(
            f"--vocab-file must hold BERT's {' '.join(NEEDED)}; {path} lacks {' '.join(missing)}: is it a vocab.txt?"
        )
    return vocab

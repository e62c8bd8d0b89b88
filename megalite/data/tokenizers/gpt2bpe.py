"""``--tokenizer-type GPT2BPETokenizer``: byte-level BPE from GPT-2's ``vocab.json`` and ``merges.txt``.

As in GPT-2's own encoder, a text that quotes ``<|endoftext|>`` is encoded as ordinary characters: only ``--append-eod``
makes a document border.
"""

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from megalite.data.tokenizers._base import (
    SpecialTokens,
    Tokenizer,
    TokenizerOptions,
    find_eod,
    fingerprint,
    read_json,
    require_file,
)
from megalite.data.tokenizers._rust import RustTokenizer
from megalite.errors import TokenizerError


def build(options: TokenizerOptions) -> Tokenizer:
    vocab_file = require_file(options.vocab_file, "--vocab-file", "vocab.json of a GPT-2 tokenizer")
    merge_file = require_file(options.merge_file, "--merge-file", "merges.txt of a GPT-2 tokenizer")
    vocab = read_json(vocab_file)
    # Bytes without a symbol of their own would vanish from the text: the BPE model drops what it does not know.
    missing = [symbol for symbol in pre_tokenizers.ByteLevel.alphabet() if symbol not in vocab]
    if missing:
        raise TokenizerError(
            f"--vocab-file must hold a symbol for each of the 256 bytes; {vocab_file} lacks {len(missing)} of them: is "
            "it the vocabulary of a byte-level BPE?"
        )
    try:
        model = models.BPE.from_file(str(vocab_file), str(merge_file))
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(
            f"--vocab-file {vocab_file} and --merge-file {merge_file} must fit together: {error}."
        ) from None
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    merges = merge_file.read_text(encoding="utf-8").split("\n")
    identity = fingerprint([vocab, [merge for merge in merges if merge and not merge.startswith("#version")]])
    tokenizer = RustTokenizer(backend, "GPT2BPETokenizer", identity)
    end_of_text = tokenizer.token_id("<|endoftext|>")
    tokenizer.eod = find_eod(tokenizer.token_id, options.eod_token, end_of_text, vocab_file)
    tokenizer.special = SpecialTokens(bos=end_of_text, eos=end_of_text, unk=end_of_text)
    return tokenizer

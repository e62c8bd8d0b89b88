import sys
import textwrap

import pytest

import megalite.data.tokenizers as package
from megalite.config import DataConfig
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import ConfigError, TokenizerError


def test_no_type_is_an_error_that_lists_the_types():
    with pytest.raises(TokenizerError, match="--tokenizer-type must say.*gpt2bpe,.*huggingface,.*null,.*tik"):
        build_tokenizer(TokenizerOptions())


def test_an_unknown_type_is_an_error_that_lists_the_types():
    with pytest.raises(ConfigError, match="--tokenizer-type must name .*'syllable'.*gpt2bpe,.*huggingface"):
        build_tokenizer(TokenizerOptions(tokenizer_type="SyllableTokenizer"))


def test_a_new_file_is_a_new_type(tmp_path, monkeypatch):
    (tmp_path / "bytes.py").write_text(
        textwrap.dedent(
            """
            class Bytes:
                name, vocab_size, eod, fingerprint = "BytesTokenizer", 256, None, "bytes"
                def encode(self, text): return list(text.encode())
            def build(options): return Bytes()
            """
        )
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    try:
        assert build_tokenizer(TokenizerOptions(tokenizer_type="BytesTokenizer")).encode("é") == [0xC3, 0xA9]
    finally:
        sys.modules.pop("megalite.data.tokenizers.bytes", None)


def test_the_options_of_a_training_run():
    fields = {
        "tokenizer_type": "GPT2BPETokenizer",
        "tokenizer_model": "m",
        "vocab_file": "v",
        "merge_file": "f",
        "eod_token": "e",
        "vocab_extra_ids": 3,
        "tiktoken_pattern": "v1",
        "tiktoken_num_special_tokens": 8,
    }
    assert TokenizerOptions.from_config(DataConfig(**fields), 7) == TokenizerOptions(**fields, vocab_size=7)

"""Every type of tokenizer, from text to a corpus that a training run of the same flags accepts."""

import base64
import json

import pytest

from megalite.config import DataConfig
from megalite.data.indexed import IndexedDataset
from megalite.data.preprocess.options import PreprocessOptions
from megalite.data.preprocess.run import preprocess
from megalite.data.sidecar import check_tokenizer
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from tests.data.tokenizers.samples import MULTILINGUAL, sentencepiece_model


def sentencepiece(directory):
    model = sentencepiece_model(directory / "x.model", model_type="bpe", vocab_size=700, byte_fallback=True)
    return {"tokenizer_model": str(model), "vocab_extra_ids": 5}


def ranks(directory):
    path = directory / "cl100k_base.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256)))
    return {"tokenizer_model": str(path)}


def bytes_as_json(directory):
    path = directory / "x.json"
    entries = [{"rank": n, "token_bytes": base64.b64encode(bytes([n])).decode(), "token_str": ""} for n in range(256)]
    path.write_text(json.dumps(entries))
    return {"tokenizer_model": str(path), "vocab_size": 270, "tiktoken_num_special_tokens": 14}


def wordpiece(directory):
    path = directory / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "1", "5", "!"]))
    return {"vocab_file": str(path), "eod_token": "[CLS]"}


TYPES = {
    "SentencePieceTokenizer": sentencepiece,
    "TikTokenizer": ranks,
    "TikTokenizer of Megatron-LM": bytes_as_json,
    "BertWordPieceLowerCase": wordpiece,
    "BertWordPieceCase": wordpiece,
}


@pytest.mark.parametrize("name", TYPES)
def test_corpora_are_the_tokenizers_ids_and_training_accepts_them(tmp_path, name):
    flags = {"tokenizer_type": name.split()[0], **TYPES[name](tmp_path)}
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in MULTILINGUAL))
    options = TokenizerOptions(**flags)
    preprocess(
        PreprocessOptions(
            input=(str(tmp_path / "x.jsonl"),),
            output_prefix=str(tmp_path / "c"),
            append_eod=True,
            workers=1,
            tokenizer=options,
        )
    )
    tokenizer, prefix = build_tokenizer(options), str(tmp_path / "c_text_document")
    expected = [[*tokenizer.encode(text), tokenizer.eod] for text in MULTILINGUAL if tokenizer.encode(text)]
    assert [sequence.tolist() for sequence in IndexedDataset(prefix)] == expected
    vocab_size = flags.pop("vocab_size", None)
    in_training = build_tokenizer(TokenizerOptions.from_config(DataConfig(**flags), vocab_size))
    check_tokenizer(prefix, in_training.vocab_size, in_training.eod, in_training.fingerprint)

import dataclasses

import numpy as np
import pytest

from megalite.data.datasets import gpt, gpt_fim
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer
from megalite.errors import ConfigError
from tests.data.corpora import request, write_corpus
from tests.data.datasets.test_gpt import part
from tests.data.tokenizers.samples import MULTILINGUAL, byte_level_bpe

SPECIAL = ("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<file_sep>")
FIM = {"fim_data": True, "tokenizer_type": "HuggingFaceTokenizer"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = byte_level_bpe(tmp_path_factory.mktemp("tokenizer"), special_tokens=SPECIAL)
    options = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(path))
    return build_tokenizer(options), str(path)


@pytest.fixture(scope="module")
def prefix(tokenizer, tmp_path_factory):
    documents = [[*ids, tokenizer[0].eod] for ids in tokenizer[0].encode_batch(MULTILINGUAL * 20)]
    return write_corpus(tmp_path_factory.mktemp("corpus") / "c", documents)


def both(tokenizer, prefix, seed=1, num_samples=40, **data):
    """The samples as they are and rearranged."""
    asked = request(64, seed, tokenizer[0], tokenizer_model=tokenizer[1], **{**FIM, **data})
    return gpt.build(part(prefix), num_samples, asked), gpt_fim.build(part(prefix), num_samples, asked)


def test_samples_have_the_form_of_plain_ones(tokenizer, prefix):
    plain, rearranged = both(tokenizer, prefix, fim_rate=1.0)
    assert len(plain) == len(rearranged) and plain.fingerprint != rearranged.fingerprint
    prefix_id, changed = tokenizer[0].encode("<fim_prefix>")[0], 0
    for before, after in zip(plain, rearranged):
        assert {name: (a.shape, a.dtype) for name, a in before.items()} == {
            name: (a.shape, a.dtype) for name, a in after.items()
        }
        changed += prefix_id in after["tokens"]
    assert changed > len(plain) / 2
    assert rearranged.padding()["loss_mask"].sum() == 0


def test_whole_documents_come_back(tokenizer, prefix):
    """Of a document that lies whole within a sample, the text can be put together again."""
    codec = tokenizer[0]
    _, rearranged = both(tokenizer, prefix, fim_rate=1.0, fim_spm_rate=0.0)
    found = set()
    for number in range(len(rearranged)):
        text = codec.decode(rearranged[number]["tokens"].tolist())
        for document in text.split("<|endoftext|>")[1:-1]:
            before, _, rest = document.removeprefix("<fim_prefix>").partition("<fim_suffix>")
            after, _, middle = rest.partition("<fim_middle>")
            found.add(before + middle + after)
    assert found <= set(MULTILINGUAL) and len(found) > 5


def test_a_sample_depends_on_its_number_alone(tokenizer, prefix):
    _, first = both(tokenizer, prefix)
    _, second = both(tokenizer, prefix)
    forwards = [first[k]["tokens"] for k in range(20)]
    backwards = [second[k]["tokens"] for k in reversed(range(20))][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(forwards, backwards))
    _, other = both(tokenizer, prefix, seed=2)
    assert other.fingerprint != first.fingerprint


def test_what_is_pushed_out_or_missing_at_the_end(tokenizer, prefix):
    """A sample that grows is cut, one that shrinks is filled up with padding, out of the loss."""
    plain, rearranged = both(tokenizer, prefix, fim_rate=1.0, num_samples=200)
    for number in range(len(rearranged)):
        kept = int(rearranged[number]["loss_mask"].sum())
        assert kept <= 64 and not rearranged[number]["loss_mask"][kept:].any()


def test_one_tokenizer_serves_all_corpora(tokenizer, prefix, monkeypatch):
    _, first = both(tokenizer, prefix)
    monkeypatch.setattr("megalite.data.datasets.gpt_fim.build_tokenizer", None)
    _, second = both(tokenizer, prefix, seed=5, fim_rate=0.1)
    assert first[0]["tokens"].shape == second[0]["tokens"].shape


def test_a_tokenizer_must_be_given(prefix, tokenizer):
    asked = dataclasses.replace(request(64, fim_data=True), vocabulary=tokenizer[0])
    with pytest.raises(ConfigError, match="fim_data needs a tokenizer, .* given none"):
        gpt_fim.build(part(prefix), 1, asked)


@pytest.mark.parametrize("flag", ["fim_prefix_token", "fim_middle_token", "fim_suffix_token", "fim_split_sample"])
def test_its_tokens_must_be_single_ones(tokenizer, prefix, flag):
    with pytest.raises(ConfigError, match=f"{flag} must be a single token of the tokenizer; 'no such token' is .* of"):
        both(tokenizer, prefix, **{flag: "no such token"})
    assert len(both(tokenizer, prefix, fim_split_sample="<file_sep>", fim_fragment_rate=0.5)[1])

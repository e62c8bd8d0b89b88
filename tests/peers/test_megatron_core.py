"""Corpora and samples exchanged with Megatron-LM's own library, where that is installed (pip install megatron-core).

The suite holds the same by recorded files and vectors (tests/golden). These tests are for new releases of theirs, and
of ours.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip(
    "megatron.core.datasets.indexed_dataset", reason="megatron-core is not installed", exc_type=ImportError
)

from megatron.core.datasets import indexed_dataset as theirs  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402

from megalite.data.build import Wanted, build_datasets  # noqa: E402
from megalite.data.indexed import IndexedDataset, optimal_dtype  # noqa: E402
from megalite.data.indexed_builder import IndexedDatasetBuilder  # noqa: E402
from megalite.data.merge import MergeOptions, merge_datasets  # noqa: E402
from tests.data.corpora import EOD, prepared, request, write_corpus  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

DOCUMENTS = [[[5, 6, 7], [8, 9]], [], [[1, 2, 3, 4]], [[300]], []]


def write(builder, documents) -> None:
    """Both libraries' builders have the same methods."""
    for sequences in documents:
        builder.add_document([token for sequence in sequences for token in sequence], list(map(len, sequences)))


def write_ours(prefix, documents, dtype) -> str:
    with IndexedDatasetBuilder(prefix, dtype) as builder:
        write(builder, documents)
        builder.finalize()
    return str(prefix)


def write_theirs(prefix, documents, dtype) -> str:
    builder = theirs.IndexedDatasetBuilder(theirs.get_bin_path(str(prefix)), dtype=np.dtype(dtype).type)
    for sequences in documents:
        tokens = [token for sequence in sequences for token in sequence]
        builder.add_document(np.array(tokens, np.int64), list(map(len, sequences)))
    builder.finalize(theirs.get_idx_path(str(prefix)))
    return str(prefix)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "uint16"])
def test_both_write_the_same_files_and_read_each_others(tmp_path, dtype):
    documents = DOCUMENTS if dtype != "uint8" else DOCUMENTS[:3]
    ours, others = write_ours(tmp_path / "a", documents, dtype), write_theirs(tmp_path / "b", documents, dtype)
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    for mmap in (True, False):
        read = theirs.IndexedDataset(ours, mmap=mmap)
        assert [read[number].tolist() for number in range(len(read))] == [s for document in documents for s in document]
        assert read.document_indices.tolist() == IndexedDataset(others).document_indices.tolist()
        assert read.index.dtype == IndexedDataset(others).dtype
    assert [sequence.tolist() for sequence in IndexedDataset(others)] == [s for document in documents for s in document]


def test_the_dtype_follows_the_same_rule():
    for vocab_size in (2, 65499, 65500, 65535, 65536, 65537, 10**6):
        assert theirs.DType.optimal_dtype(vocab_size) == optimal_dtype(vocab_size)


def test_merged_corpora(tmp_path):
    builder = theirs.IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=np.int32)
    for name in ("a", "b"):
        write_ours(tmp_path / "parts" / name, DOCUMENTS, "int32")
        builder.add_index(str(tmp_path / "parts" / name))
    builder.finalize(str(tmp_path / "theirs.idx"))
    merge_datasets(MergeOptions(input=(str(tmp_path / "parts"),), output_prefix=str(tmp_path / "ours")))
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"ours.{suffix}").read_bytes() == (tmp_path / f"theirs.{suffix}").read_bytes()


@pytest.fixture(scope="module", autouse=True)
def a_group_of_one():
    """Their builders ask for their rank."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class Tokenizer:
    """What their data sets ask of one."""

    vocab_size, eod, pad, pad_id = 100, EOD, -1, -1
    unique_identifiers = {"class": "tests"}
    special_tokens_dict = SimpleNamespace()


def config(tmp_path, seq_length, seed, **fields):
    return GPTDatasetConfig(
        random_seed=seed,
        sequence_length=seq_length,
        path_to_cache=str(tmp_path / "cache of theirs"),
        tokenizer=Tokenizer(),
        create_attention_mask=False,
        **{"reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False, **fields},
    )


def assert_same_samples(ours, others, count) -> None:
    for number in range(count):
        sample, other = ours[number], others[number]
        for name in ("tokens", "labels", "loss_mask", "position_ids"):
            assert sample[name].tolist() == other[name].tolist(), f"sample {number}: {name}"


def random_corpus(prefix, seed, num_documents=60, dtype="uint16") -> str:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 30, num_documents)
    return write_corpus(prefix, [[*random.integers(0, EOD, length - 1), EOD] for length in lengths], dtype)


# samples of training: less than an epoch, several with the last shuffled apart, several together
@pytest.mark.parametrize("count", [7, 130, 155])
@pytest.mark.parametrize(
    "flags",
    [{}, {"reset_position_ids": True}, {"eod_mask_loss": True, "reset_position_ids": True}],
    ids=["plain", "reset", "masked"],
)
def test_samples_and_their_order(tmp_path, count, flags):
    prefix = random_corpus(tmp_path / "c", 1)
    split = {"split": "80,15,5"}
    others = BlendedMegatronDatasetBuilder(
        GPTDataset, (count, 20, 5), lambda: True, config(tmp_path, 16, 1234, blend=([prefix], None), **split, **flags)
    ).build()
    ours = build_datasets(request(16, 1234, data_path=(prefix,), **split, **flags), Wanted(count, 20, 5))
    held_out = [ours.held_out[name].dataset for name in ("validation", "test")]
    for dataset, other, wanted in zip((ours.train, *held_out), others, (count, 20, 5), strict=True):
        assert_same_samples(prepared(dataset), other, wanted)


@pytest.mark.parametrize("weights", [[0.7, 0.2, 0.1], [3, 1, 1], None])
def test_blends(tmp_path, weights):
    prefixes = [random_corpus(tmp_path / name, seed) for seed, name in enumerate("abc")]
    data_path = prefixes if weights is None else [text for pair in zip(map(str, weights), prefixes) for text in pair]
    wanted = 40 if weights is None else 200
    others = BlendedMegatronDatasetBuilder(
        GPTDataset, (wanted, 0, 0), lambda: True, config(tmp_path, 8, 7, blend=(prefixes, weights), split="90,10,0")
    ).build()
    ours = build_datasets(request(8, 7, data_path=tuple(data_path), split="90,10,0"), Wanted(wanted))
    assert_same_samples(prepared(ours.train), others[0], wanted)

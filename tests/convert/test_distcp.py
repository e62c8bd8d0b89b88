"""Directories of torch.distributed.checkpoint: chunks are put together, and nothing unknown is unpickled."""

import pickle
from types import SimpleNamespace

import pytest
import torch

from megalite.convert.distcp import METADATA, ChunkedDirectory
from megalite.errors import CheckpointError
from megalite.state import Box
from tests.convert.chunked import save_state

WEIGHT = torch.arange(12.0).view(3, 4)


@pytest.fixture
def directory(tmp_path):
    save_state({"w": WEIGHT, "n": torch.tensor(7), "o": {"a": 1}}, tmp_path, no_dist=True)
    return tmp_path


def edit(directory, change) -> None:
    """Change the metadata, which this test has written itself."""
    metadata = pickle.loads((directory / METADATA).read_bytes())
    change(metadata)
    (directory / METADATA).write_bytes(pickle.dumps(metadata))


def test_boxes_scalars_and_objects(directory):
    chunks = ChunkedDirectory(directory)
    assert torch.equal(chunks.read("w", Box((1, 1), (2, 3))), WEIGHT[1:, 1:])
    assert torch.equal(chunks.read("n", Box((), ())), torch.tensor(7))
    assert (chunks.tensors["w"].dtype, chunks.tensors["w"].shape) == (torch.float32, (3, 4))
    assert chunks.read_object("o", ()) == {"a": 1}


def _entry(metadata, name):
    return next((index, info) for index, info in metadata.storage_data.items() if index.fqn == name)


def _rename(metadata):
    _entry(metadata, "w")[1].relative_path = "../elsewhere.distcp"


def _transform(metadata):
    _entry(metadata, "w")[1].transform_descriptors = ["zstd"]


def _grow(metadata):
    metadata.state_dict_metadata["w"].size = torch.Size((3, 5))


def _shift(metadata):
    chunk = metadata.state_dict_metadata["w"].chunks[0]
    chunk.offsets = torch.Size((1, 0))


def _forget(metadata):
    metadata.storage_data.pop(_entry(metadata, "w")[0])


@pytest.mark.parametrize("change, message", [
    (_rename, "not a complete checkpoint: ../elsewhere.distcp is not a plain file name"),
    (_transform, "w is stored transformed .zstd."),
    (_grow, "it is damaged .*12 of 15 elements"),
    (_shift, "it is damaged .*outside shape"),
    (_forget, "it is damaged .*KeyError"),
])  # fmt: skip
def test_metadata_that_cannot_be_honoured(directory, change, message):
    edit(directory, change)
    with pytest.raises(CheckpointError, match=message):
        ChunkedDirectory(directory)


def test_a_chunk_that_is_not_what_the_metadata_says(directory):
    def swap(metadata):
        info, other = (_entry(metadata, name)[1] for name in ("w", "n"))
        info.offset, info.length = other.offset, other.length

    edit(directory, swap)
    with pytest.raises(CheckpointError, match="is damaged: at byte .* must be .3, 4. of w in torch.float32; it is"):
        ChunkedDirectory(directory).read("w", Box.whole((3, 4)))


def test_missing_and_truncated_files_are_named(directory):
    path = next(directory.glob("*.distcp"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(CheckpointError, match=f"{path.name} must have {len(whole)} bytes, it has {len(whole) - 100}"):
        ChunkedDirectory(directory)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path.name} is missing"):
        ChunkedDirectory(directory)


class Runs:
    """What unpickling would run."""

    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize("content, message", [
    (pickle.dumps(Runs()), "holds what is not known, and is not unpickled: builtins.exec"),
    (pickle.dumps(SimpleNamespace(a=1)), "is not unpickled: types.SimpleNamespace"),
    (b"", "must be metadata of torch.distributed.checkpoint: EOFError"),
    (b"no pickle at all", "must be metadata of torch.distributed.checkpoint"),
    (pickle.dumps({"a": 1}), "that says where its data lies"),
])  # fmt: skip
def test_other_pickles_are_refused(directory, content, message):
    (directory / METADATA).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        ChunkedDirectory(directory)


def test_attributes_of_what_stands_for_an_object_lead_nowhere(directory):
    """``getattr``, by which some versions of Python write enumerations, is not the one that Python has."""
    harmful = b"cbuiltins\ngetattr\n(cbuiltins\ngetattr\nV__init__\ntRV__globals__\n\x86R."
    (directory / METADATA).write_bytes(harmful)
    with pytest.raises(CheckpointError, match="must be metadata of torch.distributed.checkpoint"):
        ChunkedDirectory(directory)

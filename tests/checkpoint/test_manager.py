import logging
import resource
from pathlib import Path

import pytest
import torch

from megalite.checkpoint.directory import TRACKER, checkpoint_path, list_iterations
from megalite.checkpoint.lock import LOCK
from megalite.checkpoint.match import Strictness
from megalite.checkpoint.piece import Piece
from megalite.checkpoint.policy import Retention
from megalite.checkpoint.retire import retire_old
from megalite.errors import CheckpointError
from megalite.log import logger
from megalite.parallel.collectives import barrier
from megalite.state import Box
from tests.checkpoint.states import assert_state, load_and_check, manager_of, save_all, state, step_down, world_group
from tests.harness import run_world


def contents(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("written_by, read_by", [(1, 1), (1, 3), (3, 1), (2, 4), (4, 2)])
def test_a_checkpoint_of_one_world_loads_in_another(tmp_path, written_by, read_by):
    run_world(lambda rank, size: save_all(tmp_path, [5, 10], rank, size), written_by)
    run_world(lambda rank, size: load_and_check(tmp_path, 10, rank, size) and None, read_by)
    assert (tmp_path / TRACKER).read_text() == "10\n"
    shards = [f"shard_{rank:05d}.safetensors" for rank in range(written_by)]
    names = [path.name for path in sorted((tmp_path / "iter_0000010").iterdir())]
    assert names == ["config.yaml", "index.json", "meta.json", *shards]
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "iter_0000005", "iter_0000010", TRACKER]


def test_the_configuration_and_counters_come_back(tmp_path):
    save_all(tmp_path, [3])
    store = load_and_check(tmp_path, 3)
    assert store.config_yaml() == "seed: 1\n" and store.meta["consumed_samples"] == 24


def test_saving_twice_without_a_step_writes_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        run_world(lambda rank, size: save_all(tmp_path / name, [7], rank, size), 2)
    assert contents(tmp_path / "a" / "iter_0000007") == contents(tmp_path / "b" / "iter_0000007")


def test_a_checkpoint_of_the_same_iteration_is_replaced(tmp_path):
    manager = manager_of(tmp_path)
    for values in (4, 9):
        manager.save(4, state(values), {}, "")
        assert_state(loaded(tmp_path, 4), values)
    manager.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "iter_0000004", TRACKER]


def loaded(directory, iteration):
    pieces = state(iteration, fill=False)
    reader = manager_of(None, load=directory)
    reader.load(reader.resume(), pieces)
    return pieces


def test_old_checkpoints_go_as_told(tmp_path):
    save_all(tmp_path, range(10, 70, 10), keep_last_checkpoints=2, save_retain_interval=30)
    assert list_iterations(tmp_path) == [30, 50, 60]
    assert not list(tmp_path.glob(".tmp-*"))


def delete_without_the_right_to(rank, world_size, save):
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger.addHandler(handler)
    step_down()
    retire_old(save, 2, Retention(keep_last=1))
    return messages


def test_a_checkpoint_that_cannot_be_deleted_is_a_warning(public_directory):
    (public_directory / "iter_0000001").mkdir()
    (public_directory / "iter_0000002").mkdir()
    public_directory.chmod(0o555)
    ((message,),) = run_world(delete_without_the_right_to, 1, public_directory)
    assert message.startswith(f"the checkpoint of iteration 1 in {public_directory} could not be deleted: [Errno 13]")
    assert list_iterations(public_directory) == [1, 2]


def test_interrupted_saves_are_cleared_by_the_next_one(tmp_path):
    (tmp_path / ".tmp-iter_0000003").mkdir()
    (tmp_path / ".tmp-iter_0000003" / "shard_00000.safetensors").write_bytes(b"x")
    (tmp_path / f".tmp-{TRACKER}").write_text("3")
    save_all(tmp_path, [4])
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "iter_0000004", TRACKER]


def test_a_replaced_checkpoint_is_found_while_its_successor_is_not_there(tmp_path):
    """The moment between the two renames of a replacement, as a killed job leaves it."""
    save_all(tmp_path, [4])
    (tmp_path / "iter_0000004").rename(tmp_path / ".old-iter_0000004")
    load_and_check(tmp_path, 4)
    save_all(tmp_path, [5])
    assert list_iterations(tmp_path) == [4, 5] and checkpoint_path(tmp_path, 4).name == "iter_0000004"
    (tmp_path / ".old-iter_0000004").mkdir()
    save_all(tmp_path, [6])
    assert not (tmp_path / ".old-iter_0000004").exists()


def save_on_a_full_disk(rank, world_size, save, full_ranks):
    """Save once, then with a limit on the size of files that some ranks meet, then once more without it."""
    manager = manager_of(save, world_group(rank, world_size))
    manager.save(1, state(1, rank, world_size), {"consumed_samples": 8}, "")
    big = Piece(f"big{rank}", (1 << 16,), Box.whole((1 << 16,)), torch.zeros(1 << 16))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank in full_ranks:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, hard))
    with pytest.raises(CheckpointError) as caught:
        manager.save(2, [big, *state(2, rank, world_size)], {"consumed_samples": 16}, "")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    barrier(world_group(rank, world_size))
    left = sorted(path.name for path in Path(save).iterdir())
    load_and_check(save, 1, rank, world_size)
    manager.save(2, state(2, rank, world_size), {"consumed_samples": 16}, "")
    load_and_check(save, 2, rank, world_size)
    manager.close()
    return str(caught.value), caught.value.same_on_every_rank, left


@pytest.mark.parametrize("world_size, full_ranks, where", [(1, [0], ""), (3, [1], " (rank 1)"), (2, [0, 1], "")])
def test_a_full_disk_is_the_same_error_on_every_rank_and_harms_nothing(tmp_path, world_size, full_ranks, where):
    outcomes = run_world(save_on_a_full_disk, world_size, tmp_path, full_ranks)
    text = (
        f"the checkpoint of iteration 2 could not be written to --save {tmp_path} "
        f"(earlier ones are intact; make room or choose another directory): File too large{where}"
    )
    assert outcomes == [(text, True, [LOCK, "iter_0000001", TRACKER])] * world_size


def start_without_the_right_to(rank, world_size, save):
    step_down()
    with pytest.raises(CheckpointError) as caught:
        manager_of(save, world_group(rank, world_size))
    return str(caught.value)


def test_a_read_only_directory_is_refused_before_training(public_directory):
    public_directory.chmod(0o555)
    lock = public_directory / LOCK
    expected = f"--save {public_directory} must be a directory that can be written to: {lock}: Permission denied"
    assert run_world(start_without_the_right_to, 2, public_directory) == [f"{expected} (rank 0)"] * 2


def test_a_save_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(CheckpointError, match="must be a directory that can be written to: .*/f: File exists"):
        manager_of(tmp_path / "f")


def test_ranks_that_do_not_share_the_directory_are_told(tmp_path):
    def save(rank, world_size):
        manager = manager_of(tmp_path / str(rank), world_group(rank, world_size))
        (tmp_path / str(rank)).mkdir(exist_ok=True)
        with pytest.raises(CheckpointError) as caught:
            manager.save(1, state(1, rank, world_size), {}, "")
        return str(caught.value)

    texts = run_world(save, 2)
    assert texts[0] == texts[1] and "shard_00001.safetensors: No such file or directory (rank 1)" in texts[0]


def differing_pieces(rank):
    """The state, but for one tensor less, one more, one of another shape and one of another dtype."""
    pieces = {piece.name: piece for piece in state(1, rank, 2, fill=False)}
    del pieces["norm"]
    pieces["count"] = Piece("count", (), Box((), ()), torch.tensor(-1.0))
    pieces["w"] = Piece("w", (8, 4), Box((4 * rank, 0), (4, 4)), torch.zeros(4, 4))
    pieces[f"new{rank}"] = Piece(f"new{rank}", (2,), Box((0,), (2,)), torch.zeros(2))
    return list(pieces.values())


def test_all_differences_of_all_ranks_are_listed_together(tmp_path):
    save_all(tmp_path, [1])

    def load(rank, world_size):
        manager = manager_of(None, world_group(rank, world_size), load=tmp_path)
        with pytest.raises(CheckpointError) as caught:
            manager.load(manager.resume(), differing_pieces(rank))
        assert caught.value.same_on_every_rank
        return str(caught.value)

    expected = f"""{tmp_path}/iter_0000001 does not fit the model:
  missing (2):
    new0
    new1
  surplus (1):
    norm
  of another shape (1):
    w: (6, 4) in the checkpoint, (8, 4) in the model
  of another dtype (1):
    count: int64 in the checkpoint, float32 in the model
Use the model that wrote it: its configuration is {tmp_path}/iter_0000001/config.yaml."""
    assert run_world(load, 2) == [expected] * 2


def test_long_lists_are_cut(tmp_path):
    save_all(tmp_path, [1])
    manager = manager_of(None, load=tmp_path)
    extra = [Piece(f"x{i:02d}", (1,), Box((0,), (1,)), torch.zeros(1)) for i in range(23)]
    with pytest.raises(CheckpointError, match=r"missing \(23\):(\n    x\d\d){20}\n    and 3 more\n"):
        manager.load(manager.resume(), state(1) + extra)


def test_differences_that_are_allowed(tmp_path, caplog):
    save_all(tmp_path, [1])
    manager = manager_of(None, load=tmp_path)
    store = manager.resume()
    weight = state(1, fill=False)[0]
    manager.load(store, [weight], Strictness(unread=lambda name: name != "w"))
    assert torch.equal(weight.tensor, state(1)[0].tensor)
    new = Piece("new", (2,), Box((0,), (2,)), torch.full((2,), 3.0))
    count = Piece("count", (), Box((), ()), torch.tensor(-1.0))
    with caplog.at_level("WARNING", "megalite"):
        manager.load(store, [weight, new, count], Strictness(missing=False, surplus=False, convert=True))
    assert "missing tensors keep their values:\n  missing (1):\n    new\n  surplus (1):\n    norm" in caplog.text
    assert torch.equal(new.tensor, torch.full((2,), 3.0)) and count.tensor.item() == 1.0
    manager.load(store, [weight], Strictness(surplus=False))
    assert "the model does not want all of it:\n  surplus (2):\n    count\n    norm" in caplog.text
    with pytest.raises(CheckpointError, match=r"does not fit the model:\n  missing \(1\):\n    new\n  surplus"):
        manager.load(store, [weight, new, count], Strictness(surplus=False, convert=True))


def test_a_flipped_bit_is_refused_when_integrity_is_verified(tmp_path):
    run_world(lambda rank, size: save_all(tmp_path, [1], rank, size, verify_integrity=True), 2)
    load_and_check(tmp_path, 1, verify_integrity=True)
    path = tmp_path / "iter_0000001" / "shard_00001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    def resume(rank, world_size):
        with pytest.raises(CheckpointError) as caught:
            manager_of(None, world_group(rank, world_size), load=tmp_path, verify_integrity=True).resume()
        return str(caught.value)

    texts = run_world(resume, 3)
    assert len(set(texts)) == 1 and "is damaged: shard_00001.safetensors no longer hold what was written" in texts[0]


def test_a_checkpoint_without_checksums_is_told(tmp_path, caplog):
    save_all(tmp_path, [1])
    with caplog.at_level("WARNING", "megalite"):
        load_and_check(tmp_path, 1, verify_integrity=True)
    assert "iter_0000001 was saved without checksums: only sizes can be verified" in caplog.text


def test_a_damaged_shard_is_the_same_error_on_every_rank(tmp_path):
    run_world(lambda rank, size: save_all(tmp_path, [1], rank, size), 2)
    path = tmp_path / "iter_0000001" / "shard_00001.safetensors"
    path.write_bytes(b"\xff" * path.stat().st_size)

    def load(rank, world_size):
        manager = manager_of(None, world_group(rank, world_size), load=tmp_path)
        with pytest.raises(CheckpointError) as caught:
            manager.load(manager.resume(), state(1, rank, world_size))
        return str(caught.value)

    texts = run_world(load, 2)
    assert len(set(texts)) == 1 and f"{path} is damaged" in texts[0]

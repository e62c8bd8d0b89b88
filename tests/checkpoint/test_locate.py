import pytest

from megalite.checkpoint.directory import TRACKER
from megalite.checkpoint.locate import find_checkpoint
from megalite.errors import CheckpointError
from tests.checkpoint.states import load_and_check, manager_of, save_all, step_down, world_group
from tests.harness import run_world

SHARD = "shard_00000.safetensors"


@pytest.fixture
def save(tmp_path):
    save_all(tmp_path, [10, 20])
    return tmp_path


def iteration_of(found):
    return found.store.meta["iteration"]


def test_the_tracker_decides_and_not_the_largest_number(save):
    (save / TRACKER).write_text("10")
    found = find_checkpoint(save)
    assert iteration_of(found) == 10 and found.warnings == ()
    (save / "iter_0000030").mkdir()
    assert iteration_of(find_checkpoint(save)) == 10


@pytest.mark.parametrize("text", ["release", "", "garbage", "-3", "1e3", "٣", "20 10", "\x00\x01"])
def test_a_damaged_tracker_is_told_and_the_newest_complete_one_taken(save, text):
    (save / TRACKER).write_text(text)
    (save / "iter_0000030").mkdir()
    found = find_checkpoint(save)
    assert iteration_of(found) == 20
    assert f"must hold an iteration number; it holds {text.strip()!r}" in found.warnings[0]
    assert "skipped iteration 30" in found.warnings[1] and "must contain index.json; it is empty" in found.warnings[1]
    assert found.warnings[2] == "continuing from iteration 20 instead"


def test_a_missing_tracker_is_told(save):
    (save / TRACKER).unlink()
    found = find_checkpoint(save)
    assert iteration_of(found) == 20 and "cannot be read (No such file or directory)" in found.warnings[0]


def test_a_tracker_that_names_no_directory_is_told(save):
    (save / TRACKER).write_text("999\n")
    found = find_checkpoint(save)
    assert iteration_of(found) == 20 and "skipped iteration 999" in found.warnings[0]
    assert "iter_0000999" in found.warnings[0] and "there is no such directory" in found.warnings[0]


def test_an_incomplete_newest_one_is_skipped_and_named(save, caplog):
    (save / "iter_0000020" / SHARD).unlink()
    with caplog.at_level("WARNING", "megalite"):
        load_and_check(save, 10)
    assert f"skipped iteration 20: {save}/iter_0000020 is not a complete checkpoint: {SHARD}: No such" in caplog.text
    assert "continuing from iteration 10 instead" in caplog.text


def test_a_later_checkpoint_than_the_tracked_one_is_offered_but_not_taken(save):
    (save / TRACKER).write_text("5")
    message = r"must contain a complete checkpoint: skipped iteration 5: .* Complete ones: --ckpt-step 10, 20\."
    with pytest.raises(CheckpointError, match=message):
        find_checkpoint(save)


def test_nothing_complete_is_an_error_that_names_all(save):
    for iteration in (10, 20):
        (save / f"iter_00000{iteration}" / SHARD).write_bytes(b"")
    with pytest.raises(CheckpointError) as caught:
        find_checkpoint(save)
    assert "must contain a complete checkpoint" in str(caught.value)
    assert "skipped iteration 20" in str(caught.value) and "skipped iteration 10" in str(caught.value)


def test_a_given_step_is_taken_or_refused(save):
    assert iteration_of(find_checkpoint(save, step=10)) == 10
    message = r"--ckpt-step 7 cannot be loaded: .*iter_0000007 .* Complete ones: --ckpt-step 10, 20\."
    with pytest.raises(CheckpointError, match=message):
        find_checkpoint(save, step=7)
    (save / "iter_0000020" / SHARD).unlink()
    with pytest.raises(CheckpointError, match=r"--ckpt-step 20 cannot be loaded: .*Complete ones: --ckpt-step 10\."):
        find_checkpoint(save, step=20)


def test_a_single_checkpoint_may_be_named_itself(save):
    assert iteration_of(find_checkpoint(save / "iter_0000010")) == 10
    assert iteration_of(find_checkpoint(save / "iter_0000010", step=10)) == 10
    with pytest.raises(CheckpointError, match="is the checkpoint of iteration 10, but --ckpt-step is 20: drop one"):
        find_checkpoint(save / "iter_0000010", step=20)


def test_a_missing_directory_or_an_empty_one_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="--load: .*/nowhere must be a directory with checkpoints"):
        manager_of(None, load=tmp_path / "nowhere").resume()
    with pytest.raises(CheckpointError, match=r"--load: .* must contain a complete checkpoint: it is empty\."):
        manager_of(None, load=tmp_path).resume()
    (tmp_path / "f").write_text("")
    with pytest.raises(CheckpointError, match="/f must be a directory"):
        manager_of(None, load=tmp_path / "f").resume()


@pytest.mark.parametrize("names, message", [
    (["config.json", "model.safetensors"], "it looks like a Hugging Face model directory"),
    (["iter_0000005/mp_rank_00"], "skipped iteration 5: .* it looks like a checkpoint of Megatron-LM's torch format"),
])
def test_checkpoints_of_other_programs_are_recognised(tmp_path, names, message):
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(CheckpointError, match=f"must contain a complete checkpoint: .*{message}"):
        find_checkpoint(tmp_path)


def test_a_job_starts_fresh_only_in_its_own_directory_and_only_the_first_time(tmp_path):
    save = tmp_path / "run"
    assert manager_of(save, load=tmp_path / "x" / ".." / "run").resume() is None
    with pytest.raises(CheckpointError, match="must contain a complete checkpoint"):
        manager_of(save, load=save, exit_on_missing_checkpoint=True).resume()
    with pytest.raises(CheckpointError, match="--ckpt-step 5 cannot be loaded"):
        manager_of(save, load=save, ckpt_step=5).resume()
    with pytest.raises(CheckpointError, match="does not exist"):
        manager_of(save, load=tmp_path / "typo").resume()
    save_all(save, [10])
    assert manager_of(save, load=save).resume().meta["iteration"] == 10
    (save / "iter_0000010" / SHARD).unlink()
    with pytest.raises(CheckpointError, match="must contain a complete checkpoint: skipped iteration 10"):
        manager_of(save, load=save).resume()


def resume_from_own(rank, world_size, parent):
    manager = manager_of(None, world_group(rank, world_size), load=parent / f"node{rank}")
    with pytest.raises(CheckpointError) as caught:
        manager.resume()
    assert caught.value.same_on_every_rank
    return str(caught.value)


def test_ranks_that_find_different_checkpoints_list_them(tmp_path):
    save_all(tmp_path / "node0", [10, 20])
    save_all(tmp_path / "node1", [10])
    texts = run_world(resume_from_own, 2, tmp_path)
    assert texts[0] == texts[1] and "all ranks must load the same checkpoint" in texts[0]
    assert f"iteration 20 in {tmp_path}/node0/iter_0000020" in texts[0] and "(rank 0)" in texts[0]
    assert f"iteration 10 in {tmp_path}/node1/iter_0000010" in texts[0] and "(rank 1)" in texts[0]
    (tmp_path / "node1" / TRACKER).unlink()
    (tmp_path / "node1" / "iter_0000010").rename(tmp_path / "node1" / "elsewhere")
    texts = run_world(resume_from_own, 2, tmp_path)
    assert texts[0] == texts[1] and "must contain a complete checkpoint" in texts[0] and "iteration 20 in" in texts[0]


def test_an_index_that_cannot_be_read_is_an_incomplete_checkpoint(save):
    index = save / "iter_0000020" / "index.json"
    index.unlink()
    index.mkdir()
    found = find_checkpoint(save)
    assert iteration_of(found) == 10 and "index.json cannot be read: Is a directory" in found.warnings[0]


def resume_without_the_right_to(rank, world_size, load):
    step_down()
    with pytest.raises(CheckpointError) as caught:
        manager_of(None, world_group(rank, world_size), load=load).resume()
    return str(caught.value)


def test_a_load_directory_that_may_not_be_read(public_directory):
    public_directory.chmod(0)
    texts = run_world(resume_without_the_right_to, 2, public_directory)
    assert texts[0] == texts[1] and texts[0].startswith(f"--load {public_directory} cannot be read: ")
    assert "Permission denied" in texts[0]


def test_a_job_that_would_write_over_another_run_is_warned(save, caplog):
    with caplog.at_level("WARNING", "megalite"):
        manager_of(save, load=save).close()
        assert not caplog.text
        manager_of(save).close()
    assert f"--save {save} holds checkpoints already: to continue that run, give --load {save} as well" in caplog.text

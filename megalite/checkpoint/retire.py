"""What becomes of checkpoints that are not to be kept: deleted, or left with their parameters alone."""

from pathlib import Path

from megalite.checkpoint.directory import checkpoint_path, delete, list_iterations, sync_directory, write_file
from megalite.checkpoint.index import INDEX, Index, read_index
from megalite.checkpoint.piece import STATE_PREFIX
from megalite.checkpoint.policy import Retention
from megalite.checkpoint.shard import STATE_SHARD_PREFIX
from megalite.errors import CheckpointError
from megalite.log import logger


def retire_old(save: Path, newest: int, retention: Retention) -> None:
    """Do away with what ``retention`` does not keep beside the checkpoint of iteration ``newest``; a failure is a
    warning."""
    for doomed in retention.doomed(list_iterations(save), newest):
        try:
            if retention.weights_of_older:
                drop_optimizer_state(checkpoint_path(save, doomed))
            else:
                delete(save, doomed)
        except (OSError, CheckpointError) as error:
            logger.warning(f"the checkpoint of iteration {doomed} in {save} could not be deleted: {error}")


def drop_optimizer_state(directory: Path) -> None:
    """Delete the files of optimizer state of a checkpoint, if it has any. It is complete at every moment."""
    files = sorted(directory.glob(f"{STATE_SHARD_PREFIX}*"))
    if not files:
        return
    # The index first: a job that is killed here leaves files that nothing names, for the next call to delete.
    whole = read_index(directory)
    parameters = Index(
        {name: stored for name, stored in whole.files.items() if not name.startswith(STATE_SHARD_PREFIX)},
        {name: tensor for name, tensor in whole.tensors.items() if not name.startswith(STATE_PREFIX)},
    )
    temporary = directory / f"{INDEX}.new"
    write_file(temporary, parameters.to_json())
    temporary.replace(directory / INDEX)
    sync_directory(directory)
    for path in files:
        path.unlink()

"""Checkpoints of other programs: read as ours, and written from ours, tensor by tensor, with neither a GPU nor a
process group."""

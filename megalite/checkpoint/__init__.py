"""Checkpoints of boxes: written by all ranks at once, published atomically, read back at any layout.

``manager`` is the way in for training, ``store`` for reading alone. The format is in docs/checkpoint-format.md.
"""

"""Data-parallel strategies; each file defines ``Strategy`` (see ``dp/strategy.py``)."""

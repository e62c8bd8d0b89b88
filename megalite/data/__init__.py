"""Corpora on disk, what a training sample is, and in which order samples come."""

"""Kinds of training data: each file has ``build(part, num_samples, request) -> Dataset``, see megalite.data.dataset."""

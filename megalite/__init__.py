"""megalite: 3D-parallel pretraining of transformer language models, with the same loss curve at every layout."""

__version__ = "0.1.0"

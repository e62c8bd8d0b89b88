"""Layers: written once, correct on one rank and on many."""

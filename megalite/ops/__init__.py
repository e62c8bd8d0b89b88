"""Numerical building blocks: each has a reference in plain torch, and a faster version where one is present."""

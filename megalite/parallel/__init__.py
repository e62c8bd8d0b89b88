"""Process groups, collectives and the autograd regions built on them."""

"""Attention cores: from queries, keys and values to weighted sums of values. A file each, named by --attention-backend.

A core's ``Core(name, model, ctx)`` is called with queries [s, b, groups, heads per group, d], keys and values
[s, b, groups, d] of this rank's heads, ``allowed`` and the batch; it returns [s, b, heads x d]. ``allowed`` (bool
[b, 1, s, s]) tells which keys a query may see; None: all up to its own position.
"""

"""Attention cores: from queries, keys and values to the weighted sums of values. A file each, named on the command line.

A core's ``Core(name, model, ctx)`` is called with queries [s, b, groups, heads per group, d], keys and values
[s, b, groups, d] of this rank's heads, and the batch; it returns [s, b, heads x d]. Attention is causal, and within a
document where the batch has ``document_ids``.
"""

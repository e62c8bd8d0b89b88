"""Which rank does what: the mesh of ranks, the placement of stages and the arithmetic of micro-batches. Integers only."""

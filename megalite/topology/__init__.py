"""Which rank does what: the mesh of ranks, the placement of stages, the arithmetic of micro-batches. Integers only."""

"""One file per pipeline schedule, named by ``--pipeline-schedule``.

A builder has ``build(pp, virtual, num_microbatches, *, options...) -> Schedule``: it orders each rank's computes and
knows nothing about messages. Files that start with an underscore are helpers.
"""

"""The pipeline: units cut into virtual stages, and the executor that runs a schedule on them."""

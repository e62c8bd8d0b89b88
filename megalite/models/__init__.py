"""Model families: a file each, named by --model, whose ``units(model, recompute)`` lists the model's units."""

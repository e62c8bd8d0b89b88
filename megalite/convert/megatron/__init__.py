"""What Megatron-LM's checkpoints are made of: ranks, names, arguments and optimizer state. The format's file uses
it."""

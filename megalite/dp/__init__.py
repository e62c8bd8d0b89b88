"""Data parallelism: parameters in flat buckets, and strategies that reduce their gradients and share their updates."""

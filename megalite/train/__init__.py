"""The training program: one step, the loop around it, and what the loop reports."""

"""Checkpoints that stay when their run has ended: what forks begin at."""

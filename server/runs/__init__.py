"""Runs: one execution of one recipe and seed, and the queue they wait in."""

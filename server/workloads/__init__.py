"""Workloads: what the workers found to train, version by version."""

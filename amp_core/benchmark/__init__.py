"""The gain of a recipe: its speed and memory beside the baseline's, measured by turns on one device."""

from amp_core.benchmark.rounds import benchmark

__all__ = ["benchmark"]

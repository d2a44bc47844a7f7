"""Figures of a run: what is measured, when, and how it comes over."""

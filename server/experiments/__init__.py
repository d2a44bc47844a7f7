"""Experiments: one question, its plan, its runs and its history."""

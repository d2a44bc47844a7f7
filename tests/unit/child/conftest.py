"""Fixtures of the child tests."""

from tests_child import cold, secrets, warm, watch

__all__ = ["cold", "secrets", "warm", "watch"]

"""Fixtures of the queue's tests."""

from queue_fixture import queue

__all__ = ["queue"]

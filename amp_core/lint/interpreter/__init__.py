"""A small abstract interpreter: runs a module's source on abstract values and records what it does as events."""

from amp_core.lint.interpreter.roots import interpret

__all__ = ["interpret"]

"""The command line's own error."""


class CommandError(Exception):
    """A command cannot do what was asked; the message gives the value, the rule and the remedy."""

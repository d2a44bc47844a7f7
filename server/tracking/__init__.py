"""Runs tracked from outside: a script somewhere trains, says so, and sends its points."""

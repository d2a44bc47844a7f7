"""Runs beside each other: what differs in configuration, environment, source and numbers."""

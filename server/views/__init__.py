"""Saved views of the lists: a name for the query part of an address, for oneself or for the team."""

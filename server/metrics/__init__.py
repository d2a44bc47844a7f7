"""Numeric series of runs: packed, stored once, read exactly or binned without losing an extreme, streamed live."""

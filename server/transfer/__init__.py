"""Experiments out of the store and back: JSON lines, CSV or Parquet, each complete, so that the same comes back."""

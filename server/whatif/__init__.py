"""What-if: what another format, scale or scaler would have done to a run, from what the run recorded."""

"""What a run would lose in another format, at another scale, under another scaler; from its record. No torch."""

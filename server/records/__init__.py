"""What a run leaves besides numbers: events, logs and artifacts."""

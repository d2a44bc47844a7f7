"""Script mode: your own loop under any recipe, with the engine's telemetry, events and resume. docs/scripts.md."""

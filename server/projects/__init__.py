"""Projects: a name to gather experiments under."""

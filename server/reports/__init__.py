"""Reports of the team: Markdown with charts of runs, versioned, exported as one file."""

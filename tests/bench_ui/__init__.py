"""``make bench-ui``: what the dashboard costs a browser and whether it keeps its budgets, measured in Chromium."""

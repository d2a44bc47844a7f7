"""Health: whether the process lives, whether it can serve, and figures for Prometheus."""

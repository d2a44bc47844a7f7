"""Webhooks: other services are told of verdicts, failed runs and lost workers, by signed requests."""

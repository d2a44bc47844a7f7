"""The worker: one Celery process per host that claims queued runs, supervises their child processes, and stores what
they say. It never imports torch; only the children do.
"""

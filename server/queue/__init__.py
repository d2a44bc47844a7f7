"""The queue: rows of `runs`, and the rules by which they change hands.

Every function takes an open writing session, never commits, and holds under several servers and workers at once: on
SQLite because writers are serialised (BEGIN IMMEDIATE), on PostgreSQL by row locks. Locks are always taken in the
order run, then experiment.
"""

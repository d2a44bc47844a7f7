"""A team's history for tests and measurements of pages: 12 experiments, 300 runs, written through the store's own code.

`write_team_history(settings)` fills an empty database in seconds; `add_many_runs` adds thousands of further rows. Every
figure is made up, and the same in every call but for times, which count back from now.
"""

from seeded.history import TeamHistory, write_team_history
from seeded.many import add_many_runs

__all__ = ["TeamHistory", "add_many_runs", "write_team_history"]

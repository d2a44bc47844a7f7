"""``make bench-store``: the same work done by ampboard and by other trackers, in one run, as ratios."""

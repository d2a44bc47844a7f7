"""``make test-faults``: things are killed, cut, filled and shifted while runs are at work; nothing may be lost."""

"""Workers: which processes execute runs, on which devices."""

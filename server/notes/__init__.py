"""Notes and tags on everything: experiments, runs, reports, workloads."""

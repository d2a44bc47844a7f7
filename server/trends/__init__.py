"""A workload over time: speed, memory, quality, verdicts; where they changed; rules that tell."""

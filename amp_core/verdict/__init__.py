"""The verdict: is a recipe as good as FP32, and is it worth it here? Pure functions, no torch, no database.

`judge` turns `ExperimentEvidence` into a `Comparison`; docs/verdict.md says what each word means.
"""

from amp_core.verdict.comparison import Comparison, as_json, from_json, spell
from amp_core.verdict.evidence import BenchmarkEvidence, ExperimentEvidence, Primary, RunEvidence
from amp_core.verdict.judge import judge

__all__ = [
    "BenchmarkEvidence",
    "Comparison",
    "ExperimentEvidence",
    "Primary",
    "RunEvidence",
    "as_json",
    "from_json",
    "judge",
    "spell",
]

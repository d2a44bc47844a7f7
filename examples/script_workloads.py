"""The scripts of this folder as workloads: AMPBOARD_WORKLOADS=examples ampboard up."""

from amp_core import Metric, ScriptWorkload


class PlainScript(ScriptWorkload):
    """A plain training loop in a script of its own."""

    script = "scripts/plain.py"
    primary = Metric("loss", higher_is_better=False, margin=0.05, relative=True)
    steps = 12


class GanScript(ScriptWorkload):
    """Two models and two optimizers."""

    script = "scripts/gan.py"
    primary = Metric("distance", higher_is_better=False, margin=0.1)
    steps = 12

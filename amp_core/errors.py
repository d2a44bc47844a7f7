"""The engine's errors.

AmpError
├── RecipeError (ValueError)       a recipe that cannot work, or that this device cannot run
├── WorkloadError (ValueError)     a workload file or class that breaks its contract
├── AnalysisError (ValueError)     an analysis that does not exist, or options that it cannot take
├── ProtocolError                  a frame on the event pipe that cannot be read
├── ProcessFailed                  a process that this one started failed
│   └── ArmFailed                  one of the two processes of a benchmark
├── ContractError (RuntimeError)   a script that breaks the order of scaling, backward, unscaling and stepping
├── TrainingStopped                nothing helps a script's run any more: it ends before its last step
├── NotResumable                   a checkpoint that is damaged, or that does not lead back into the run
├── ForkError                      another run's checkpoint, where this run was to begin, is not there or does not fit
└── Interrupted                    thrown into `amp_core.training.train` to end a run early
"""


class AmpError(Exception):
    """Base of everything amp_core raises on purpose."""


class RecipeError(AmpError, ValueError):
    """A recipe that cannot work: the message gives the value, the rule and the remedy."""


class WorkloadError(AmpError, ValueError):
    """A workload that cannot be loaded or that breaks the contract of `amp_core.Workload`."""


class AnalysisError(AmpError, ValueError):
    """An analysis that does not exist or options it cannot take: value, rule and remedy."""


class ProtocolError(AmpError):
    """A frame that is not one of `amp_core.events`."""


class NotResumable(AmpError):
    """A run cannot go on from a checkpoint: the message says why."""


class ForkError(AmpError):
    """A run cannot begin at another run's checkpoint: the message says why, and what to do."""


class Interrupted(AmpError):
    """A run is asked to end: `amp_core.training.train` hands over what it has and stops."""


class ProcessFailed(AmpError):
    """A process that this one started failed; ``kind`` and ``traceback`` are those of its own failure."""

    def __init__(self, message: str, kind: str, traceback: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.traceback = traceback


class ArmFailed(ProcessFailed):
    """One of a benchmark's processes failed."""


class ContractError(AmpError, RuntimeError):
    """A script uses the engine in an order that would give wrong gradients: the message says what, and what to do."""


class TrainingStopped(AmpError):
    """A script's run ends before its last step: the message says why nothing helps."""

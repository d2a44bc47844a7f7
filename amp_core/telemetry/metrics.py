"""Every metric series a run can have: unit, meaning, source. ``python -m amp_core.telemetry.metrics`` prints the page
docs/metrics.md, and a test compares the two.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One series. ``when`` says at which steps it has points; ``formula`` is exact enough to check by hand."""

    name: str
    unit: str
    when: str
    formula: str
    source: str


METRICS = (
    MetricInfo(
        "train/loss",
        "the workload's",
        "every step",
        "The loss the workload returned for the batch of this step, before loss scaling.",
        "`amp_core.step`",
    ),
    MetricInfo(
        "eval/<metric>",
        "the workload's",
        "every `eval_every` steps and the last",
        "What `Workload.metrics` returned for the evaluation batches, in evaluation mode under the recipe's autocast.",
        "`amp_core.evaluation`",
    ),
    MetricInfo(
        "grad/norm",
        "the loss's per weight",
        "every step",
        "2-norm over all gradients after unscaling and before clipping: the root of the summed squares of each "
        "parameter's norm. Not finite where a gradient is not (also on skipped steps).",
        "`amp_core.telemetry.gradients`",
    ),
    MetricInfo(
        "grad/underflow_fraction",
        "1",
        "sampled steps of mixed precision: each one if emulated, else the first of every 8 and the last",
        "Of the gradient elements that are nonzero in FP32 for the same batch, weights and dropout masks: the share "
        "that is exactly zero in this run. Subnormal values are not zero.",
        "`amp_core.telemetry.numerics`",
    ),
    MetricInfo(
        "grad/fp16_underflow_fraction",
        "1",
        "sampled steps of 32-true",
        "A prediction: of this FP32 run's nonzero gradient elements, the share that a cast to fp16 without a loss "
        "scale would turn into zero (magnitude at most 2^-25). It counts the weights' gradients alone; gradients of "
        "activations, which underflow first, are not in it.",
        "`amp_core.telemetry.gradients`",
    ),
    MetricInfo(
        "optim/learning_rate",
        "1",
        "every step of a workload with a schedule",
        "The learning rate of the first group of the first optimizer at this step; a skipped step does not move it.",
        "`amp_core.real_steps`",
    ),
    MetricInfo(
        "amp/loss_scale",
        "1",
        "every step of 16-mixed",
        "The scale the loss of this step was multiplied by; 1 without a scaler.",
        "`amp_core.scaler`",
    ),
    MetricInfo(
        "amp/skipped",
        "0 or 1",
        "every step of 16-mixed",
        "1 if a scaled gradient was not finite, so that the optimizer changed nothing; always 0 without a scaler.",
        "`amp_core.scaler`",
    ),
    MetricInfo(
        "perf/step_time_s",
        "s",
        "every step but the sampled ones, the first and the second",
        "From the batch on the device to the end of the optimizer step: host clock on a CPU, CUDA events on a GPU.",
        "`amp_core.telemetry.timing`",
    ),
    MetricInfo(
        "perf/samples_per_s",
        "1/s",
        "as perf/step_time_s",
        "Samples of the batch by the time of the whole iteration on the host's clock, data loading included.",
        "`amp_core.training`",
    ),
    MetricInfo(
        "memory/process_bytes",
        "B",
        "at every flush",
        "Resident memory of the run's process.",
        "`amp_core.telemetry.memory`",
    ),
    MetricInfo(
        "memory/allocated_bytes",
        "B",
        "at every flush, on CUDA",
        "Most bytes allocated on the device at any time since the flush before.",
        "`amp_core.telemetry.memory`",
    ),
    MetricInfo(
        "memory/saved_for_backward_bytes",
        "B",
        "the second step",
        "Storages autograd saved for backward, each counted once, without those of parameters and buffers.",
        "`amp_core.telemetry.memory`",
    ),
)


def page() -> str:
    """docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Every series a run can have. Sampled steps: the first, every `numerics_every` (25 by default), and the last.",
        "NaN and infinities are stored and drawn as they are.",
        "",
        "This page is printed by `python -m amp_core.telemetry.metrics`.",
        "",
        "| series | unit | points at | meaning | source |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| `{m.name}` | {m.unit} | {m.when} | {m.formula} | {m.source} |" for m in METRICS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())

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
        "amp/fp8_saturated_fraction",
        "1",
        "every 25 steps and every flush of fp8-mixed where it is emulated",
        "Of the elements cast to fp8 since the last point (inputs, weights and output gradients of linear layers): the "
        "share that the scaled cast could not hold, because it was not finite or its scale was too large. The cast "
        "saturates, so that no test for finite numbers would see it.",
        "`amp_core.precision.fp8_linear`",
    ),
    MetricInfo(
        "amp/fp8_underflow_fraction",
        "1",
        "as amp/fp8_saturated_fraction",
        "Of the nonzero elements cast to fp8 since the last point: the share that became zero.",
        "`amp_core.precision.fp8_linear`",
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
        "perf/flops_per_step",
        "FLOP",
        "the second step, unless compiled",
        "Floating-point operations of the matrix products, convolutions and fused attention of one step, forward "
        "and backward: by torch.utils.flop_counter's formulas from the shapes that ran; 2 for a multiplication and "
        "an addition. Optimizer, elementwise and recurrent cuDNN or oneDNN operations are not in it.",
        "`amp_core.telemetry.operations`",
    ),
    MetricInfo(
        "perf/tflops_per_s",
        "TFLOP/s",
        "at every flush with timed steps, unless emulated or compiled",
        "perf/flops_per_step by the mean perf/step_time_s of the flush, by 10^12.",
        "`amp_core.telemetry.rates`",
    ),
    MetricInfo(
        "perf/mfu",
        "1",
        "as perf/tflops_per_s, where the peak is known",
        "Model FLOPs utilisation: the time the products of a step would take at the device's dense peak for the "
        "type each computes in, by the mean step time. Peaks of GPUs: NVIDIA's data sheets, in the table of "
        "`amp_core.telemetry.peaks`; a device that is not in it has no such series. Peak of a CPU: the fastest of "
        "4 products of 512×512×512 in that type, measured by the run with its own threads.",
        "`amp_core.telemetry.peaks`",
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
    MetricInfo(
        "memory/saved_weight_copies_bytes",
        "B",
        "the second step",
        "The part of memory/saved_for_backward_bytes that is copies of weights in a lower type, which autocast makes; "
        "the rest are activations.",
        "`amp_core.telemetry.memory`",
    ),
    MetricInfo(
        "memory/weights_bytes",
        "B",
        "sampled steps",
        "Parameters and buffers of the model, in the types they are stored in.",
        "`amp_core.telemetry.memory`",
    ),
    MetricInfo(
        "memory/gradients_bytes",
        "B",
        "sampled steps",
        "Gradients after backward; of a sparse one its values.",
        "`amp_core.telemetry.memory`",
    ),
    MetricInfo(
        "memory/optimizer_bytes",
        "B",
        "sampled steps",
        "Tensors in the optimizers' state before the update: 0 until the first real step.",
        "`amp_core.telemetry.memory`",
    ),
    MetricInfo(
        "device/power_w",
        "W",
        "at a flush, once a second at most, on CUDA with nvidia-ml-py installed and where the device tells it",
        "nvmlDeviceGetPowerUsage: board power, averaged by the driver.",
        "`amp_core.telemetry.device`",
    ),
    MetricInfo(
        "device/energy_j",
        "J",
        "at a flush, once a second at most, on CUDA with nvidia-ml-py installed and where the device tells it",
        "nvmlDeviceGetTotalEnergyConsumption since the start of this attempt, of the whole device.",
        "`amp_core.telemetry.device`",
    ),
    MetricInfo(
        "device/temperature_c",
        "°C",
        "at a flush, once a second at most, on CUDA with nvidia-ml-py installed and where the device tells it",
        "nvmlDeviceGetTemperature of the GPU.",
        "`amp_core.telemetry.device`",
    ),
    MetricInfo(
        "device/clock_sm_hz",
        "Hz",
        "at a flush, once a second at most, on CUDA with nvidia-ml-py installed and where the device tells it",
        "nvmlDeviceGetClockInfo of the multiprocessors.",
        "`amp_core.telemetry.device`",
    ),
    MetricInfo(
        "device/clock_memory_hz",
        "Hz",
        "at a flush, once a second at most, on CUDA with nvidia-ml-py installed and where the device tells it",
        "nvmlDeviceGetClockInfo of the memory.",
        "`amp_core.telemetry.device`",
    ),
    MetricInfo(
        "device/utilisation",
        "1",
        "at a flush, once a second at most, on CUDA with nvidia-ml-py installed and where the device tells it",
        "nvmlDeviceGetUtilizationRates: share of the driver's last sample period in which a kernel ran.",
        "`amp_core.telemetry.device`",
    ),
    MetricInfo(
        "device/memory_used_bytes",
        "B",
        "at a flush, once a second at most, on CUDA with nvidia-ml-py installed and where the device tells it",
        "nvmlDeviceGetMemoryInfo: bytes in use on the device, those of other processes included.",
        "`amp_core.telemetry.device`",
    ),
)


SAMPLED = """
## Exponent histograms

Events `exponent_histograms` and `GET /api/v1/runs/{id}/exponents` hold, by module, how many elements have which
exponent in FP32, split where the rounding of fp16, bf16, e4m3 or e5m2 turns; zeros, infinities and NaN apart. So the
shares that underflow, become subnormal or overflow in each format at each scale 2^k are exact counts of those
tensors, equal to real casts of `x * 2**k`. Sources: `amp_core.telemetry.exponents` (layout and reader),
`amp_core.telemetry.exponent_counts`.

- `activations`: outputs in forward of modules that own parameters or have no children (not of compiled models, and not
  at the second step). `gradients`: of weights, after unscaling, before clipping. `weights`: before the update.
- They are taken at sampled steps: at the first 64 of them, then at every second to the 128th, every fourth to the 256th
  and so on, and at the last; activations and weights at every eighth of these and the last. Counting takes 3 to 4 ms
  for a million elements on one core, and nothing in between.
- A what-if is exact for the recorded tensors. Of a run under another recipe it is a prediction.

## Effective precision

The event `effective_precision` holds what the second step computed in: operations by module, phase and type with their
calls, FLOPs and time, casts with their bytes and time, products off the multiples that tensor cores want (8 elements in
fp16 and bf16, 16 in fp8), switches of FP32 arithmetic, and on CUDA the names of kernels. `took_effect` is false where a
recipe asked for a lower type and less than 50 % of the FLOPs of products ran in it, modules kept in FP32 left out, or
where it asked for FP32 and more than 1 % ran in less. An emulated product counts for fp16 when every value it was given
is one of fp16. That step takes about twice its time. Source: `amp_core.telemetry.effective`.
"""


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
    return "\n".join(lines) + "\n" + SAMPLED


if __name__ == "__main__":
    sys.stdout.write(page())

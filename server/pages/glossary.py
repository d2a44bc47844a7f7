"""The words of the help page and of the explanations beside them: each term with what it means, keys, colours."""

from __future__ import annotations

Entries = tuple[tuple[str, str], ...]
SECTIONS: tuple[tuple[str, Entries], ...] = (
    (
        "The answer",
        (
            (
                "Verdict",
                "What a comparison with the baseline says of a recipe. SAFE: as good within the margin, no stability "
                "finding. SAFE WITH CAUTION: as good, but something non-fatal was seen. UNSAFE: worse than the margin "
                "allows, or broken. INCONCLUSIVE: the evidence does not decide; the card says what to run next.",
            ),
            (
                "Margin",
                "The largest loss of quality that still counts as good, fixed at submission. It is never learnt from "
                "noise, because a noisier baseline would then pass worse models.",
            ),
            (
                "Interval",
                "The two-sided 90 % interval of the mean difference from the baseline, over runs paired by seed. "
                "Drawn as the bar of the scorecard. SAFE needs its bad end inside the margin.",
            ),
            (
                "A/A control",
                "FP32 against FP32 with initial weights perturbed by one in a million: what no difference looks like "
                "here. If even that fails the margin, the experiment cannot tell.",
            ),
            (
                "Fork",
                "Runs that all begin at one kept checkpoint of an FP32 run and train a few steps from there, each "
                "under its recipe and seed. The verdict is about these steps alone, and says so.",
            ),
            (
                "Gain",
                "Speed and memory against FP32, apart from the verdict. Speed is the ratio of medians over alternating "
                "timed blocks, with an interval. An emulated run has no gain.",
            ),
            (
                "Difference from a pinned run",
                "Each curve minus that of the pinned run, or the mean of the pinned seeds, at steps that both have. "
                "It is taken over every stored point and thinned afterwards. NaN and infinities stay marks; a step at "
                "which a pinned run is not finite has no difference.",
            ),
            (
                "Speed against quality",
                "Each recipe by its speed and its difference from the baseline, with both intervals; the baseline is "
                "at 1× and no difference. The dashed front joins recipes that no other beats in both. Recipes whose "
                "speed was not measured, emulated ones among them, are listed below the picture.",
            ),
            (
                "Divergence",
                "The first step from which a recipe's smoothed loss stays beyond what the baseline's own seeds do "
                "among themselves. A healthy curve leaves their band often and comes back; it does not count.",
            ),
        ),
    ),
    (
        "What runs",
        (
            ("Workload", "What is trained: a model, its data, its loss, its optimizer and one metric that decides."),
            ("Recipe", "How numbers are handled: precision, loss scaler, modules kept in FP32."),
            ("Experiment", "One question: a workload under several recipes and seeds, one recipe being the baseline."),
            ("Run", "One execution of one recipe and seed, in a process of its own."),
            ("Attempt", "One try of a run. When a worker dies, the run is queued again and gets another."),
            ("Baseline", "The recipe the others are compared with, FP32 unless you choose another."),
            (
                "Trends",
                "A workload over its experiments: throughput, peak memory and the primary metric of each recipe. A "
                "change is where the level moved for good: piecewise constant least squares with a penalty for each "
                "change, noise from the differences of neighbours, single outliers left out. Of series that only have "
                "noise fewer than five in a hundred show one. Six points are the least.",
            ),
            ("Seed", "The same seed gives the same initial weights, data order and dropout in every recipe."),
        ),
    ),
    (
        "Mixed precision",
        (
            ("32-true", "FP32 for everything, TensorFloat-32 off."),
            ("bf16-mixed", "Autocast to bfloat16: the range of FP32 with 8 bits of precision. No loss scaling."),
            ("16-mixed", "Autocast to float16: more precision, but small gradients become zero unless scaled."),
            ("Autocast", "Runs each operation in the format its list names: matmuls low, sums and norms in FP32."),
            (
                "Loss scale",
                "A factor on the loss that lifts gradients into float16's range. Dynamic: doubled after many clean "
                "steps, halved on overflow. Shown above its lane of skipped steps.",
            ),
            (
                "Skipped step",
                "An optimizer step left out because a scaled gradient was not finite.",
            ),
            (
                "Lost samples",
                "Samples whose gradient was thrown away with a skipped step: seen, but not learnt from. More than 1 % "
                "of all is a caution.",
            ),
            (
                "Exponents",
                "How large gradients are, by powers of two. A format holds a window of exponents; the loss scale moves "
                "the gradients through it. Above the window they overflow, below it they become zero.",
            ),
            (
                "Memory of training",
                "Weights, their gradients, the optimizer's state and what the forward pass keeps for backward. "
                "Mixed precision shrinks mostly the last.",
            ),
            (
                "Underflow",
                "Gradients too small for the format become exactly zero. The loss may look healthy while a layer "
                "learns nothing: see Gradients by module on the run page.",
            ),
            (
                "Emulated",
                "On a CPU, 16-mixed is computed as tensor cores do: inputs and outputs rounded to float16, sums in "
                "FP32, with CUDA's operation lists. It usually predicts range faults of a GPU. Its speed and memory "
                "say nothing and are never shown as a gain.",
            ),
        ),
    ),
    (
        "Reading the charts",
        (
            (
                "Lines and bands",
                "Thick line: mean over seeds. Thin: single seeds. Band: lowest to highest seed of the baseline, or of "
                "the recipe chosen over the charts.",
            ),
            (
                "x axis",
                "Steps; time since each run began; time of day; samples or tokens seen, where the runs recorded them.",
            ),
            (
                "Smoothing",
                "An exponential moving average, for the eye only and off at first. The raw line stays, faint. Tables "
                "and downloads are always raw.",
            ),
            (
                "Zoom",
                "Drag over a chart: every chart of the page shows the same stretch, with exact points fetched. Double "
                "click or “whole range” goes back.",
            ),
            (
                "Log scale",
                "For values over many powers of ten. Values at or below zero have no place on it: ○ marks them along "
                "the lower edge.",
            ),
            (
                "Marks on the axis",
                "✕ is NaN, ▲ plus infinity, ▼ minus infinity. They are never dropped or replaced.",
            ),
            (
                "Beyond the scale",
                "The y axis shows the bulk of the values, so that one spike does not flatten every curve. △ and ▽ mark "
                "what lies beyond; “full range” shows it.",
            ),
            (
                "Extremes kept",
                "Long series are thinned for drawing; each bin keeps its first, last, lowest and highest value and "
                "every kind of non-finite one. Zooming in on a run shows the exact points.",
            ),
            (
                "Live and stale",
                "Live: the page hears of new points at once. Stale: the connection is lost since then.",
            ),
        ),
    ),
    (
        "The team",
        (
            (
                "Notification",
                "What you are told in the browser, counted by the bell until you read it: verdicts, failed runs, lost "
                "workers, trend alerts, of your own work or everybody's, as you choose. Events of one experiment that "
                "come before you look are one line. Webhooks tell other services the same.",
            ),
            (
                "Digest",
                "The last day or week of the whole team in figures: experiments judged, verdicts given, runs ended.",
            ),
            (
                "Note",
                "One text in Markdown for an experiment, run, report or workload, written by everybody who may submit. "
                "If somebody saves while you write, you see both and nothing is lost.",
            ),
        ),
    ),
)
KEYBOARD = (
    (("?",), "These keys, on pages that have more of them"),
    (("/",), "Search, on lists"),
    (("Tab",), "Next control; a visible frame shows where you are"),
    (("Enter", "Space"), "Press a button, open a menu or a table"),
    (("←", "→"), "Move a slider: smoothing, loss scale"),
    (("Esc",), "Close an explanation, a dialog, the full screen"),
    (("l",), "Charts: logarithmic scale of the chart under focus"),
    (("f",), "Charts: full screen of the chart under focus"),
    (("w",), "Charts and their controls: whole range"),
    (("0",), "Charts and their controls: smoothing off"),
)
COLOUR_KEY = (
    ("32-true", "fp32"),
    ("bf16-mixed", "bf16"),
    ("16-mixed", "fp16"),
    ("16-mixed, no scaler", "fp16-none"),
    ("16-mixed, static scale", "fp16-static"),
    ("bf16-mixed with modules in FP32", "bf16-kept"),
    ("16-mixed with modules in FP32", "fp16-kept"),
)

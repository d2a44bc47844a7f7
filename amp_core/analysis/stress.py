"""The stress battery: edge cases under a recipe, each beside the same model in FP32 and in FP64."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import torch

from amp_core.analyses import STRESS_CASES, StressOptions, parse_options
from amp_core.analysis.edge_batches import NotApplicable, edge_batch
from amp_core.analysis.frame import Analysis
from amp_core.analysis.plain import plain
from amp_core.analysis.start import Start, find_start
from amp_core.analysis.stress_findings import Errors, errors, find, note
from amp_core.analysis.witness import Seen, Witness
from amp_core.config import RunConfig
from amp_core.events import Event, Progress, Report, StressFinding
from amp_core.workload import Workload

KIND = "stress"
LOSS_FACTORS = {"tiny_loss": 2.0**-20, "huge_loss": 2.0**20}
LOGIT_PEAK = 3e4
CURE_ROUNDS = 4
NOTHING = Errors(outputs={}, gradients={})
RANDOM = 1e-3  # a loss that differs more between FP32 and FP64 on an ordinary batch holds random numbers


def stress(config: RunConfig, workload: Workload) -> Iterator[Event]:
    """Run the battery: `Started`, `Progress`, `StressFinding`s, partial `Report`s and the final one, `Finished`."""
    options = parse_options(KIND, config.options)
    assert isinstance(options, StressOptions)
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    work = _Stress(config, workload, options)
    yield work.started(workload)
    yield from work.told()


class _Stress(Analysis):
    """The state of one battery between its cases."""

    def __init__(self, config: RunConfig, workload: Workload, options: StressOptions) -> None:
        super().__init__(config)
        self.workload = workload
        self.options = options
        self.cases = options.cases or tuple(STRESS_CASES)
        self.rows: list[dict[str, Any]] = []
        self.findings: list[StressFinding] = []
        self.modules: dict[str, dict[str, Any]] = {}
        self.reference = "FP64"
        self.mode = "training"
        self.recipe: dict[str, Any] | None = None
        self.mended: list[str] | None = None

    def events(self) -> Iterator[Event]:
        yield self._progress(f"Training {self.options.start} steps in FP32")
        start = find_start(self.config, self.workload, self.options.start, 1)
        witness = Witness(self.config, self.workload, start)
        batch = start.steps[0][0]
        ordinary, exact = self._ordinary(witness, batch)
        for case in self.cases:
            if time.monotonic() - self.began > self.options.max_seconds:
                self._note(case, "not run", "The time for the battery was over: raise max_seconds.")
                continue
            yield self._progress(STRESS_CASES[case].capitalize())
            found = self._case(witness, case, batch, ordinary, exact)
            yield from found
            yield self.report(final=False)
        yield self._progress("Trying the recipe with the modules found in FP32")
        self._cure(start, batch, ordinary, exact)
        yield self.report(final=True)

    def _ordinary(self, witness: Witness, batch: Any) -> tuple[Errors, Seen]:
        """Errors on the batch as it is. Decides what the reference is, and whether the model must be evaluated."""
        exact, fp32 = witness.fp64(batch), witness.fp32(batch)
        if exact.error:
            self.reference = f"FP32, because the model does not run in FP64 ({exact.error})"
            exact = fp32
        elif abs(exact.loss - fp32.loss) > RANDOM * max(abs(exact.loss), 1e-12):
            witness.evaluating, self.mode = True, "evaluation, because training draws random numbers"
            exact = witness.fp64(batch)
        low = witness.recipe(batch)
        found = errors(low, exact)
        for (module, _call), error in found.outputs.items():
            row = self.modules.setdefault(module, {"module": module, "ordinary": 0.0, "worst": 0.0, "case": ""})
            row["ordinary"] = max(row["ordinary"], error)
        return found, exact

    def _case(self, witness: Witness, case: str, batch: Any, ordinary: Errors, exact: Seen) -> list[StressFinding]:
        """Run one case in three widths and note what it shows."""
        try:
            low, fp32, reference = self._passes(witness, case, batch, exact)
        except NotApplicable as reason:
            self._note(case, "not applicable", f"{str(reason)[:1].upper()}{str(reason)[1:]}.")
            return []
        if reference.error:
            self._note(case, "not applicable", f"The model takes no such batch, in FP64 either: {reference.error}")
            return []
        found = find(case, low, fp32, reference, NOTHING if case == "ordinary" else ordinary, self.options.tolerance)
        self._note_modules(case, low, reference)
        said = note(reference, fp32)
        outcome = (
            "finding" if any(one.caused_by == "recipe" for one in found) else "note" if found or said else "passes"
        )
        sentence = " ".join(one.sentence for one in found) or said
        self._note(case, outcome, sentence, low, reference)
        self.findings += found
        return found

    def _passes(
        self, witness: Witness, case: str, batch: Any, exact: Seen, fp32_modules: tuple[str, ...] = ()
    ) -> tuple[Seen, Seen, Seen]:
        """Under the recipe, in FP32, and in the reference."""
        changed = edge_batch(case, batch)
        factor = LOSS_FACTORS.get(case, 1.0)
        if case == "huge_logits":
            witness.amplified = _amplification(exact)
        try:
            fp32 = witness.fp32(changed, factor)
            reference = fp32 if self.reference != "FP64" else witness.fp64(changed, factor)
            return witness.recipe(changed, factor, fp32_modules), fp32, reference
        finally:
            witness.amplified = None

    def _cure(self, start: Start, batch: Any, ordinary: Errors, exact: Seen) -> None:
        """Repeat the cases with findings, the modules found in FP32; a few times, with those found then."""
        mine = _of_recipe(self.findings)
        kept = _modules(mine)
        if not kept:
            return
        witness = Witness(self.config, self.workload, start, evaluating=self.mode != "training")
        cases = list(dict.fromkeys(one.case for one in mine))
        for _ in range(CURE_ROUNDS):
            left: list[StressFinding] = []
            for case in cases:
                low, fp32, reference = self._passes(witness, case, batch, exact, tuple(kept))
                known = NOTHING if case == "ordinary" else ordinary
                left += _of_recipe(find(case, low, fp32, reference, known, self.options.tolerance))
            self.mended = [case for case in cases if case not in {one.case for one in left}]
            fresh = [name for name in _modules(left) if name not in kept]
            recipe = self.config.recipe
            name = f"{recipe.name}, {len(kept)} in FP32"[:80]
            tried = msgspec.structs.replace(recipe, name=name, fp32_modules=(*recipe.fp32_modules, *kept))
            self.recipe = msgspec.to_builtins(tried)
            if not fresh:
                return
            kept += fresh

    def _note_modules(self, case: str, low: Seen, reference: Seen) -> None:
        for (module, _call), error in errors(low, reference).outputs.items():
            row = self.modules.setdefault(module, {"module": module, "ordinary": 0.0, "worst": 0.0, "case": ""})
            if error > row["worst"]:
                row["worst"], row["case"] = error, case

    def _note(
        self, case: str, outcome: str, sentence: str, low: Seen | None = None, reference: Seen | None = None
    ) -> None:
        row: dict[str, Any] = {"case": case, "what": STRESS_CASES[case], "outcome": outcome, "sentence": sentence}
        if low is not None and reference is not None:
            row |= {"loss": low.loss, "loss_reference": reference.loss, "scale": low.scale}
        self.rows.append(row)

    def _progress(self, message: str) -> Progress:
        return Progress(done=len(self.rows), total=len(self.cases), message=message)

    def report(self, final: bool) -> Report:
        """What is known so far."""
        content = {
            "state": "done" if final else "running",
            "answer": self._answer(final),
            "reference": self.reference,
            "mode": self.mode,
            "cases": self.rows,
            "findings": [msgspec.to_builtins(one) for one in self.findings],
            "modules": list(self.modules.values()),
            "recipe": self.recipe,
            "mended": self.mended,
            "seconds": time.monotonic() - self.began,
        }
        return Report(kind=KIND, content=plain(content), final=final)

    def _answer(self, final: bool) -> str:
        tried = [row for row in self.rows if row["outcome"] not in ("not applicable", "not run")]
        failed = [row for row in tried if row["outcome"] == "finding"]
        if not final:
            return f"{len(self.rows)} of {len(self.cases)} cases so far, {len(failed)} with findings."
        answer = f"{self.config.recipe.name} bears {len(tried) - len(failed)} of {len(tried)} cases as FP64 does."
        if self.mended:
            answer += f" With the modules found kept in FP32 it bears {len(self.mended)} of the other {len(failed)}."
        elif self.mended is not None:
            answer += " Keeping the modules found in FP32 mends none of the others."
        return answer


def _of_recipe(findings: list[StressFinding]) -> list[StressFinding]:
    return [one for one in findings if one.caused_by == "recipe"]


def _modules(findings: list[StressFinding]) -> list[str]:
    """The named modules of findings, each once."""
    return list(dict.fromkeys(one.module for one in findings if one.module))


def _amplification(exact: Seen) -> tuple[str, float]:
    """The last module that gave something, and the factor that makes its largest output `LOGIT_PEAK`."""
    if not exact.outputs:
        raise NotApplicable("the model has no modules whose outputs could be scaled")
    inner = [key for key in exact.outputs if not any(other[0].startswith(f"{key[0]}.") for other in exact.outputs)]
    last = inner[-1]
    peak = float(exact.outputs[last].abs().max()) if exact.outputs[last].numel() else 0.0
    if not (0.0 < peak < math.inf):
        raise NotApplicable("the last module's outputs are zero")
    return last[0], LOGIT_PEAK / peak

"""The sentences a reader meets first: headline, statements, one sentence per recipe, and the method behind "why"."""

from __future__ import annotations

from collections.abc import Sequence

from amp_core.verdict import segment, sentences
from amp_core.verdict.comparison import Control, Finding, Quality, Reason, RecipeComparison, Verdict
from amp_core.verdict.evidence import ExperimentEvidence
from amp_core.verdict.gain import is_slower, times

MAX_STATEMENTS = 3
GOOD = ("SAFE", "SAFE WITH CAUTION")


def recipe_sentence(
    evidence: ExperimentEvidence,
    recipe: str,
    quality: Quality,
    verdict: Verdict | None,
    reasons: Sequence[Reason],
    findings: Sequence[Finding],
) -> str:
    """One plain sentence with the main number."""
    if verdict is None:
        return _so_far(evidence, quality)
    if verdict == "UNSAFE":
        return _unsafe(evidence, quality, findings)
    if verdict in GOOD:
        text = _as_good(evidence, quality)
        caution = next((one.sentence for one in reasons if one.severity == "caution"), None)
        return f"{text} But: {caution}" if verdict == "SAFE WITH CAUTION" and caution else text
    blocking = [one.sentence for one in reasons if one.severity == "caution"]
    return f"Not settled. {blocking[0]}" if blocking else f"Not settled: {recipe} has too few pairs."


def _so_far(evidence: ExperimentEvidence, quality: Quality) -> str:
    if quality.mean_harm is None:
        return f"No pair of runs has ended yet; {sentences.count(quality.num_planned, 'seed')} planned."
    primary = evidence.primary
    return (
        f"So far {quality.num_pairs} of {sentences.count(quality.num_planned, 'pair')}: "
        f"{_metric(evidence)} {_is_shift(evidence, quality.mean_harm)} on average; the margin is "
        f"{sentences.margin_text(primary)}."
    )


def _metric(evidence: ExperimentEvidence) -> str:
    return sentences.metric_label(evidence.primary.metric)


def _is_shift(evidence: ExperimentEvidence, harm: float) -> str:
    return f"is {sentences.shift(evidence.primary, harm)}"


def _as_good(evidence: ExperimentEvidence, quality: Quality) -> str:
    assert quality.mean_harm is not None
    assert quality.interval is not None
    return (
        f"As good as {evidence.baseline.name}{segment.over(evidence)}: "
        f"{_metric(evidence)} {_is_shift(evidence, quality.mean_harm)} on average, "
        f"{sentences.worst_case(evidence.primary, quality.interval[1])}; the margin is "
        f"{sentences.margin_text(evidence.primary)}."
    )


def _unsafe(evidence: ExperimentEvidence, quality: Quality, findings: Sequence[Finding]) -> str:
    fatal = next((finding.sentence for finding in findings if finding.severity == "fatal"), None)
    if _is_worse(quality) and quality.mean_harm is not None:
        change = f"{_metric(evidence)} {_is_shift(evidence, quality.mean_harm)} on average"
        text = f"Worse than {evidence.baseline.name}{segment.over(evidence)}: {change}."
        return f"{text} {fatal}" if fatal else text
    assert fatal is not None
    return fatal


def headline(evidence: ExperimentEvidence, recipes: Sequence[RecipeComparison], control: Control | None) -> str:
    """The answer to "can we switch?" in one sentence, with its number."""
    if not recipes:
        return f"Only {evidence.baseline.name} was planned: there is nothing to compare."
    if not evidence.has_ended:
        ended = sum(run.is_final for run in evidence.all_runs)
        planned = sentences.count(len(evidence.all_runs), "run")
        return f"So far {ended} of {planned} have ended; the verdict comes with the last."
    good = [one for one in recipes if one.verdict in GOOD]
    if good:
        return _good_headline(evidence, good)
    unsettled = [one for one in recipes if one.verdict == "INCONCLUSIVE"]
    if unsettled and control is not None and control.passes is False:
        return control.sentence
    if unsettled:
        return _unsettled_headline(evidence, unsettled)
    return _bad_headline(evidence, recipes)


def _good_headline(evidence: ExperimentEvidence, good: Sequence[RecipeComparison]) -> str:
    names = sentences.recipe_listing([one.recipe for one in good])
    verb = "is" if len(good) == 1 else "are"
    uppers = [one.quality.interval[1] for one in good if one.quality is not None and one.quality.interval is not None]
    number = sentences.worst_case(evidence.primary, max(uppers))
    return (
        f"{names} {verb} as good as {evidence.baseline.name}{segment.over(evidence)} ({_metric(evidence)} {number})"
        f"{_caution_clause(good)}"
        f"{_gain_clause(evidence, good)}."
    )


def _caution_clause(good: Sequence[RecipeComparison]) -> str:
    careful = [one.recipe for one in good if one.verdict == "SAFE WITH CAUTION"]
    if not careful:
        return ""
    return ", with caution" if len(careful) == len(good) else f", {sentences.recipe_listing(careful)} with caution"


def _gain_clause(evidence: ExperimentEvidence, good: Sequence[RecipeComparison]) -> str:
    """What the safe recipes gain: the fastest by name, or which are not faster; nothing where nothing was measured."""
    here = sentences.device_text(evidence.device)
    measured = [one for one in good if one.gain.measured and one.gain.speed is not None]
    faster = [one for one in measured if one.gain.faster]
    if faster:
        best = max(faster, key=lambda one: one.gain.speed.ratio if one.gain.speed else 0.0)
        assert best.gain.speed is not None
        speed = f"about {times(best.gain.speed.ratio)} faster on {here}"
        return f" and {speed}" if len(good) == 1 else f"; {best.recipe} is {speed}"
    if not measured:
        return ""
    slow = [one.recipe for one in measured if one.gain.faster is False]
    if len(good) == 1:
        return f", but not faster on {here}" if slow else f"; its speed on {here} is not known"
    return f"; {sentences.recipe_listing(slow)} not faster on {here}" if slow else f"; speed on {here} is not known"


def _unsettled_headline(evidence: ExperimentEvidence, unsettled: Sequence[RecipeComparison]) -> str:
    first = unsettled[0]
    reason = next((one.sentence for one in first.reasons if one.severity == "caution"), first.sentence)
    step = f" {first.next_step.sentence.split(':')[0].rstrip('.')}." if first.next_step is not None else ""
    names = sentences.recipe_listing([one.recipe for one in unsettled])
    return f"Not settled for {names}{segment.over(evidence)}. {reason}{step}"


def _bad_headline(evidence: ExperimentEvidence, recipes: Sequence[RecipeComparison]) -> str:
    """No recipe may be used: by how much the least bad one loses, or what broke."""
    name = evidence.baseline.name
    who = f"{recipes[0].recipe} is not" if len(recipes) == 1 else f"None of the {len(recipes)} recipes is"
    harms = [
        one.quality.mean_harm
        for one in recipes
        if one.quality is not None and one.quality.mean_harm is not None and _is_worse(one.quality)
    ]
    if len(harms) < len(recipes):
        return f"{who} safe to use{segment.over(evidence)}. {next(one.sentence for one in recipes if one.findings)}"
    best = "" if len(recipes) == 1 else " of the best"
    loss = sentences.shift(evidence.primary, min(harms))
    return f"{who} as good as {name}{segment.over(evidence)}: {_metric(evidence)}{best} is {loss} on average."


def _is_worse(quality: Quality) -> bool:
    return quality.interval is not None and quality.interval[0] > quality.margin


def _uncapital(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def statements(evidence: ExperimentEvidence, recipes: Sequence[RecipeComparison], control: Control | None) -> list[str]:
    """At most three plain sentences: findings first, then losses of quality, then what is open, then the gain."""
    found = [
        f"{one.recipe}: {_uncapital(finding.sentence)}"
        for severity in ("fatal", "caution")
        for one in recipes
        for finding in one.findings[:2]
        if finding.severity == severity
    ]
    harmed = [
        f"{one.recipe}: {_uncapital(_loss(evidence, one.quality))}"
        for one in recipes
        if one.verdict == "UNSAFE" and one.quality is not None and _is_worse(one.quality)
    ]
    doubtful = [control.sentence] if control is not None and control.passes is False else []
    open_ones = [f"{one.recipe}: {_uncapital(one.sentence)}" for one in recipes if one.verdict == "INCONCLUSIVE"]
    gains = [f"{one.recipe}: {_uncapital(one.gain.sentence)}" for one in _worth_saying(recipes)]
    chosen = [*found[:1], *harmed[:1], *doubtful, *open_ones[:1], *found[1:2], *gains]
    return list(dict.fromkeys(chosen))[:MAX_STATEMENTS]


def _loss(evidence: ExperimentEvidence, quality: Quality) -> str:
    assert quality.mean_harm is not None
    return (
        f"{_metric(evidence)} {_is_shift(evidence, quality.mean_harm)} than with {evidence.baseline.name} on average; "
        f"the margin is {sentences.margin_text(evidence.primary)}."
    )


def _worth_saying(recipes: Sequence[RecipeComparison]) -> list[RecipeComparison]:
    """Gains of recipes that may be used, the measured ones first, slower ones before "not measured"."""
    usable = [one for one in recipes if one.verdict in GOOD or one.verdict is None]
    slower = [one for one in usable if one.gain.speed is not None and is_slower(one.gain.speed)]
    faster = [one for one in usable if one.gain.measured and one not in slower]
    unmeasured = [one for one in usable if not one.gain.measured and one.numerics == "emulated"]
    return [*faster, *slower, *unmeasured]


def why_of(evidence: ExperimentEvidence, control: Control | None) -> str:
    """How the words were reached, in the terms of the method."""
    text = (
        f"Runs are paired by seed: {segment.pairing(evidence)}. "
        f"{_metric(evidence)} at the last evaluation; harm is candidate minus baseline in the bad direction. "
        "SAFE needs a non-inferiority test at one-sided 5 % against the margin of "
        f"{sentences.margin_text(evidence.primary)}, fixed at submission; UNSAFE needs the whole 90 % interval beyond "
        "it, or one run that broke while its FP32 twin stayed healthy. Judged once, when all planned runs had ended."
    )
    if control is not None:
        text += (
            f" A/A control: the baseline against itself, {segment.perturbed(evidence)} perturbed by 1e-6 relative, "
            "within the margin by two one-sided tests."
        )
    return text


def recipe_why(evidence: ExperimentEvidence, quality: Quality) -> str:
    """The method figures of one recipe."""
    if quality.interval is None or quality.mean_harm is None:
        return f"{sentences.count(quality.num_pairs, 'pair')}: an interval needs two."
    primary = evidence.primary
    low, high = (sentences.shift(primary, end) for end in quality.interval)
    text = (
        f"Paired t over {sentences.count(quality.num_pairs, 'pair')}: "
        f"mean {sentences.shift(primary, quality.mean_harm)}, 90 % interval from {low} to "
        f"{high}, margin {sentences.margin_text(primary)}."
    )
    if quality.floored:
        text += " The spread is below the metric's resolution, so the interval was widened to that."
    if quality.holm is not None:
        text += f" Non-inferiority p = {quality.holm.p_value:.2g}, needed below {quality.holm.threshold:.3g}"
        text += f" (Holm over {quality.holm.num_recipes} recipes)." if quality.holm.num_recipes > 1 else "."
    return text

"""Numbers and names as a verdict says them: one place decides decimals, units and the words for better and worse."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_core.verdict.evidence import Primary

_LABELS = {"psnr": "PSNR", "ssim": "SSIM", "auc": "AUC", "f1": "F1", "bleu": "BLEU", "mse": "MSE"}


def metric_label(name: str) -> str:
    """``psnr`` → ``PSNR``, ``top1_accuracy`` → ``top1 accuracy``."""
    return _LABELS.get(name.lower(), name.replace("_", " "))


def is_proportion(primary: Primary) -> bool:
    """Whether the metric counts right answers among all, so that 1/size is its smallest step."""
    return "accuracy" in primary.metric.lower()


def _in_points(primary: Primary) -> bool:
    return is_proportion(primary) and not primary.relative and primary.unit in ("", "fraction")


def _scale_and_unit(primary: Primary) -> tuple[float, str]:
    """How a difference is shown: a factor, and what follows the number."""
    if primary.relative:
        return 100.0, " %"
    if _in_points(primary):
        return 100.0, " percentage points"
    unit = "percentage points" if primary.unit == "%" else primary.unit
    return 1.0, f" {unit}" if unit else ""


def _decimals(shown_margin: float) -> int:
    """Two significant digits of the margin, so that a figure beside it means something."""
    return min(8, max(0, 1 - math.floor(math.log10(shown_margin))))


def amount(primary: Primary, difference: float) -> str:
    """The size of a difference, without its sign: ``0.02 dB``, ``0.40 percentage points``, ``less than 0.01 dB``."""
    scale, unit = _scale_and_unit(primary)
    if not math.isfinite(difference):
        return "an infinite amount" if math.isinf(difference) else "an amount that is not a number"
    decimals = _decimals(primary.margin * scale)
    size = abs(difference) * scale
    smallest = 10.0**-decimals
    if 0.0 < size < smallest / 2:
        return f"less than {smallest:.{decimals}f}{unit}"
    return f"{size:.{decimals}f}{unit}"


def signed(primary: Primary, harm: float) -> str:
    """Candidate minus baseline in the metric's own direction: ``−0.02 dB`` for a PSNR that fell."""
    return f"{_signed_number(primary, harm)}{_scale_and_unit(primary)[1]}"


def signed_interval(primary: Primary, lower: float, upper: float) -> str:
    """The interval of harm as one of the difference, low end first: ``−0.08 to +0.04 dB``."""
    ends = (upper, lower) if primary.higher_is_better else (lower, upper)
    return f"{_signed_number(primary, ends[0])} to {_signed_number(primary, ends[1])}{_scale_and_unit(primary)[1]}"


def _signed_number(primary: Primary, harm: float) -> str:
    scale, _ = _scale_and_unit(primary)
    difference = -harm * scale if primary.higher_is_better else harm * scale
    if not math.isfinite(difference):
        return "NaN" if math.isnan(difference) else ("−∞" if difference < 0 else "+∞")
    text = f"{difference:+.{_decimals(primary.margin * scale)}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def margin_text(primary: Primary) -> str:
    """The margin as fixed at submission: ``0.25 dB``, ``0.5 percentage points``, ``1 % of the baseline``."""
    scale, unit = _scale_and_unit(primary)
    return f"{primary.margin * scale:.6g}{unit}" + (" of the baseline" if primary.relative else "")


def worse_word(primary: Primary) -> str:
    return "lower" if primary.higher_is_better else "higher"


def better_word(primary: Primary) -> str:
    return "higher" if primary.higher_is_better else "lower"


def shift(primary: Primary, harm: float) -> str:
    """A harm in plain words: ``0.02 dB lower``, ``0.10 % higher``, ``the same``."""
    if harm == 0.0:
        return "the same"
    return f"{amount(primary, harm)} {worse_word(primary) if harm > 0 else better_word(primary)}"


def worst_case(primary: Primary, upper: float) -> str:
    """The end of the interval in the bad direction: ``at most 0.08 dB lower``."""
    if upper > 0.0:
        size = amount(primary, upper)
        return f"at {'worst' if size.startswith('less') else 'most'} {size} {worse_word(primary)}"
    return f"in the worst case still {shift(primary, upper)}"


def listing(names: Sequence[object], conjunction: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    words = [str(name) for name in names]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def recipe_listing(names: Sequence[str]) -> str:
    """Recipe names hold commas of their own (``16-mixed, no scaler``): these are set apart by semicolons."""
    if len(names) > 2 and any("," in name for name in names):
        return f"{'; '.join(names[:-1])}; and {names[-1]}"
    return listing(names)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 seed``, ``5 seeds``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(fraction: float) -> str:
    """A share that is 100 % only when it is all, and 0 % only when it is none: ``99 %``, ``0.4 %``."""
    if fraction in (0.0, 1.0):
        return f"{fraction * 100:.0f} %"
    if fraction > 0.99:
        return "more than 99 %" if fraction < 0.999 else "more than 99.9 %"
    return f"{fraction * 100:.2g} %" if fraction < 0.1 else f"{fraction * 100:.0f} %"


def minutes_text(minutes: float) -> str:
    """``under a minute``, ``about 9 minutes``, ``about 3.5 hours``."""
    if minutes < 1.0:
        return "under a minute"
    if minutes < 90.0:
        rounded = round(minutes)
        return f"about {count(rounded, 'minute')}"
    return f"about {minutes / 60.0:.1f} hours"


def seeds_text(seeds: Sequence[int]) -> str:
    """``seed 3``, ``seeds 0, 1 and 2``."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {listing(seeds)}"


def device_text(device: str) -> str:
    return "this CPU" if device.startswith("cpu") else "this GPU"

"""A diagnosis in words."""

from __future__ import annotations

from amp_core.forensics.diagnosis import Cause, Kind
from amp_core.forensics.locate import Fault

_WHAT: dict[Kind, str] = {
    "overflow": "a result is beyond what {dtype} can hold and becomes infinite",
    "underflow": "values too small for {dtype} become exactly zero",
    "cancellation": "a small difference of large numbers is lost to rounding in {dtype}",
    "precision_loss": "{dtype} has too few digits for these numbers, and what differs between them is rounded away",
    "swamping": "each addend is below half a step of {dtype} at the size of the sum, so adding it changes nothing",
    "nan_of_infinities": "infinities meet (0·inf or inf−inf) and give NaN",
    "domain_error": "rounding in {dtype} moves an operand to where the operation has no value (a zero divisor, the "
    "logarithm of zero, a negative square)",
    "dtype_error": "the operation refuses these types or a constant outside {dtype}'s range",
    "misuse": "the code cannot run under this recipe",
}

_FIX: dict[Kind, str] = {
    "overflow": "scale the operands down before the operation, or compute it in FP32",
    "underflow": "scale the values up (loss scaling for gradients, normalised inputs for data), or compute it in FP32",
    "cancellation": "subtract in FP32, or use a formula that does not subtract large numbers",
    "precision_loss": "compute it in FP32 and lower only the result",
    "swamping": "accumulate in FP32 (weights, statistics and sums), lower only what is read",
    "nan_of_infinities": "keep infinite constants out of the arithmetic (use the format's largest value), "
    "or compute it in FP32",
    "domain_error": "use an epsilon that the format can represent or a fused stable form (…_with_logits, log_softmax), "
    "or compute it in FP32",
    "dtype_error": "use torch.finfo(x.dtype).min for masks, custom_fwd/custom_bwd for custom functions, "
    "or keep the module in FP32",
    "misuse": "change the code as the message says",
}


def what_happened(fault: Fault, step: int, dtype: str, cause: Cause, scale: float | None) -> str:
    """Where and what, in one sentence."""
    place = (
        f"In {fault.module}"
        if fault.module
        else "In the model's own forward"
        if fault.module == ""
        else ("Outside the model (loss or training code)")
    )
    size = f" (max |x| {fault.max_abs:.4g})" if fault.max_abs is not None else ""
    when = f"{fault.phase} of step {step}" if step else fault.phase
    text = f"{place}, {when}, {fault.op}: {_WHAT[fault.kind].format(dtype=dtype)}{size}."
    if cause == "scale":
        shown = "without loss scaling" if scale in (None, 1.0) else f"at loss scale {scale:g}"
        return f"{text} It happens {shown} and not at another scale."
    return f"{text} The values themselves do it: no loss scale changes that."


def fix_in_words(kind: Kind, cure: str | None) -> str:
    """The remedy in the code, and the recipe that does without touching it."""
    text = _FIX[kind]
    text = text[0].upper() + text[1:]
    return f"{text}. As a recipe: {cure}." if cure else f"{text}."

"""Numbers that do not survive half precision."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.rule import rule
from amp_core.lint.values import HALVES, Const, Tensor, Value

EXACT = {"float16": 2048, "bfloat16": 256}


@rule(
    "AMP401",
    "constant-out-of-half-range",
    Severity.ERROR,
    what="A constant beyond ±65504 is written into a float16 tensor, such as the -1e9 of an attention mask.",
    why="masked_fill raises under float16 autocast; an added mask becomes -inf, and a row that is masked "
    "throughout becomes NaN.",
    before="""
with autocast("cuda", dtype=torch.float16):
    scores = torch.matmul(q, k)
    scores = scores.masked_fill(mask, -1e9)
""",
    after="""
with autocast("cuda", dtype=torch.float16):
    scores = torch.matmul(q, k)
    scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
""",
    fix='use torch.finfo(tensor.dtype).min or float("-inf"), or scores.float()',
)
def out_of_range(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("out_of_range"):
        value = "a constant beyond ±65504" if event.detail is None else f"{event.detail:g}"
        yield event.node, f"{value} does not fit float16 (±65504): use torch.finfo(tensor.dtype).min"


@rule(
    "AMP402",
    "eps-below-half-range",
    Severity.ERROR,
    what="An eps of 1e-8 or less guards a division, a logarithm or a root of a float16 tensor.",
    why="It rounds to 0 in float16 (the smallest positive value is 6e-8), so that it guards nothing: 0/0 is NaN, "
    "log(0) is -inf.",
    before="""
with autocast("cuda", dtype=torch.float16):
    h = torch.matmul(a, b)
    scaled = (h - h.amin()) / (h.amax() - h.amin() + 1e-8)
""",
    after="""
with autocast("cuda", dtype=torch.float16):
    h = torch.matmul(a, b).float()
    scaled = (h - h.amin()) / (h.amax() - h.amin() + 1e-8)
""",
    fix="compute this in float32 with .float(), or use an eps of at least 1e-4",
)
def lost_eps(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("lost_eps"):
        yield event.node, "this eps is 0 in float16, and protects from nothing: compute in float32 or use 1e-4"


@rule(
    "AMP403",
    "positions-in-half",
    Severity.WARNING,
    what="Positions or coordinates are kept in 16 bits.",
    why="Whole numbers are exact up to 2048 in float16 and 256 in bfloat16; beyond, neighbours become equal, and "
    "rotary angles or sampling grids are wrong.",
    before="""
positions = torch.arange(8192).to(torch.bfloat16)
""",
    after="""
positions = torch.arange(8192).float()
""",
    fix="compute positions and angles in float32 outside autocast, and cast sine and cosine",
)
def positions(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("positions_half", "positions_low"):
        extent = event.tensor.extent if event.tensor is not None else None
        if event.detail in EXACT and (extent is None or extent > EXACT[event.detail]):
            limit = EXACT[event.detail]
            yield event.node, f"positions in {event.detail} are exact up to {limit} only: keep them in float32"


@rule(
    "AMP404",
    "one-minus-probability-in-half",
    Severity.WARNING,
    what="1 - p of a 16-bit probability goes into a logarithm, a root or a denominator.",
    why="Next to 1 float16 has steps of 0.0005 and bfloat16 of 0.004: p is exactly 1 above a logit of 8 or 6, and"
    " the logarithm is -inf.",
    before="""
with autocast("cuda", dtype=torch.bfloat16):
    p = torch.sigmoid(torch.matmul(a, b))
    loss = -torch.log(1 - p).mean()
""",
    after="""
with autocast("cuda", dtype=torch.bfloat16):
    logits = torch.matmul(a, b)
    loss = -F.logsigmoid(-logits.float()).mean()
""",
    fix="use logsigmoid, BCEWithLogitsLoss or softplus on float32 logits",
)
def complement(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("complement"):
        yield event.node, "1 - p of a 16-bit probability is exactly 0 for large logits: work on float32 logits"


@rule(
    "AMP405",
    "fft-on-half",
    Severity.WARNING,
    what="An FFT or STFT of a 16-bit tensor.",
    why="cuFFT takes float16 only for sizes that are powers of two and bfloat16 not at all, and the sums of a "
    "transform overflow early.",
    before="""
with autocast("cuda", dtype=torch.float16):
    h = torch.matmul(a, b)
    spectrum = torch.fft.rfft(h)
""",
    after="""
with autocast("cuda", dtype=torch.float16):
    h = torch.matmul(a, b)
    spectrum = torch.fft.rfft(h.float())
""",
    fix="cast with .float() before the transform",
)
def fft(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("fft"):
        dtype = event.tensor.dtype if event.tensor is not None else "16-bit"
        yield event.node, f"the transform gets a {dtype} tensor: cast it with .float()"


@rule(
    "AMP406",
    "handwritten-norm-in-half",
    Severity.WARNING,
    what="A normalisation written by hand squares a float16 tensor.",
    why="Values above 256 overflow when squared; the variance is inf, its inverse root 0, and the output silently"
    " all zero.",
    before="""
with autocast("cuda", dtype=torch.float16):
    h = torch.matmul(a, b)
    normed = h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5)
""",
    after="""
with autocast("cuda", dtype=torch.float16):
    h = torch.matmul(a, b).float()
    normed = h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5)
""",
    fix="compute the statistics in float32, or use nn.LayerNorm or nn.RMSNorm",
)
def handwritten_norm(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("norm"):
        yield event.node, "squares of float16 overflow above 256: compute the statistics in float32"


@rule(
    "AMP407",
    "accumulation-in-half",
    Severity.WARNING,
    what="A loss, metric or count is summed up in 16 bits.",
    why="A float16 sum stops at 2048 when 1 is added, a bfloat16 one at 256; averages over an epoch come out too "
    "small.",
    before="""
total = torch.zeros((), dtype=torch.bfloat16)
for x, y in loader:
    total += loss_fn(model(x), y).detach()
""",
    after="""
total = torch.zeros((), dtype=torch.float32)
for x, y in loader:
    total += loss_fn(model(x), y).detach()
""",
    fix="sum in float32 or in Python numbers",
)
def accumulation(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("accumulate"):
        if not event.loops and not _is_buffer(event):
            continue
        target, value = event.detail
        if _is_half_sum(target):
            yield event.node, f"a {target.dtype} sum stalls: its steps become too coarse for what is added"
        elif _is_number(target) and _is_half(value) and value.models and value.scaled is None:
            yield event.node, f"a running sum of {value.dtype} tensors stalls: add value.float() or value.item()"


def _is_half(value: Value) -> bool:
    return isinstance(value, Tensor) and value.dtype in HALVES and not value.is_number


def _is_half_sum(target: Value) -> bool:
    """A plain sum in 16 bits, not a gradient, an activation or a residual stream."""
    if not isinstance(target, Tensor) or not _is_half(target) or target.gradient_of is not None:
        return False
    return target.is_buffer or not (target.models or target.regions)


def _is_number(target: Value) -> bool:
    return isinstance(target, Const) or (isinstance(target, Tensor) and target.is_number)


def _is_buffer(event: Event) -> bool:
    target = event.detail[0]
    return isinstance(target, Tensor) and target.is_buffer

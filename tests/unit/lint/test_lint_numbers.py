"""Numbers in half precision: found where the dtype is certain, silent where it is not."""

import pytest
from lint_sources import check

FORWARD = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.proj = nn.Linear(d, d)
        self.scale = d ** -0.5

    def forward(self, x, mask=None):
        h = self.proj(x)
{body}
        return h


net = Net()
with torch.autocast("cuda", dtype=torch.{dtype}):
    out = net(torch.randn(4, 8))
"""

FAULTY = {
    "mask in place": ("float16", "h.masked_fill_(mask, -1e9)  # !! constant-out-of-half-range"),
    "mask by where": ("float16", "h = torch.where(mask, h, -1e30)  # !! constant-out-of-half-range"),
    "mask by item": ("float16", "h[mask] = -1e10  # !! constant-out-of-half-range"),
    "mask constant in a name": (
        "float16",
        "NEG = -1e9\n        h = (h * self.scale).masked_fill(mask == 0, NEG)  # !! constant-out-of-half-range",
    ),
    "float32's minimum": ("float16", "h = h + torch.full_like(h, -3.4e38)  # !! constant-out-of-half-range"),
    "additive mask, cast": (
        "float16",
        "bias = (1.0 - torch.ones(4, 4)) * -1e9\n        h = h + bias.to(h.dtype)  # !! constant-out-of-half-range",
    ),
    "eps in a denominator": ("float16", "h = h / (h.std() + 1e-8)  # !! eps-below-half-range"),
    "eps in a clamp": ("float16", "h = h / h.abs().amax().clamp(min=1e-12)  # !! eps-below-half-range"),
    "eps in a logarithm": ("float16", "h = torch.log(torch.sigmoid(h) + 1e-10)  # !! eps-below-half-range"),
    "eps in a root": ("float16", "h = (h.var(-1) + 1e-9).sqrt()  # !! eps-below-half-range"),
    "positions cast": (
        "float16",
        "t = torch.arange(x.shape[0]).to(h.dtype)  # !! positions-in-half\n        h = h + t",
    ),
    "positions made in half": ("float16", "h = h + torch.arange(5000, dtype=torch.half)  # !! positions-in-half"),
    "positions like a flow": ("bfloat16", "h = h + torch.arange(x.size(1), dtype=h.dtype)  # !! positions-in-half"),
    "positions multiplied": (
        "bfloat16",
        "t = torch.arange(x.shape[1]).float()\n"
        '        h = torch.einsum("i,j->ij", t, torch.ones(4))  # !! positions-in-half',
    ),
    "one minus p": (
        "bfloat16",
        "p = torch.sigmoid(h)\n        h = torch.log(1 - p)  # !! one-minus-probability-in-half",
    ),
    "log1p": ("float16", "h = torch.log1p(-h.sigmoid())  # !! one-minus-probability-in-half"),
    "fft": ("float16", "h = torch.fft.rfft(h)  # !! fft-on-half"),
    "stft": ("float16", "h = torch.stft(h, 64)  # !! fft-on-half"),
    "rms norm": (
        "float16",
        "var = h.square().mean(-1)  # !! handwritten-norm-in-half\n        h = h * torch.rsqrt(var + 1e-5)",
    ),
    "layer norm": (
        "float16",
        "c = h - h.mean(-1, keepdim=True)\n        v = (c * c).mean(-1)  # !! handwritten-norm-in-half\n"
        "        h = c / (v + 1e-5).sqrt()",
    ),
}


@pytest.mark.parametrize(("dtype", "body"), FAULTY.values(), ids=FAULTY)
def test_faulty_numbers(dtype, body):
    check(FORWARD.format(dtype=dtype, body="        " + body))


SILENT = {
    "mask in bfloat16": ("bfloat16", "h = h.masked_fill(mask, -1e9)"),
    "mask after float()": ("float16", "h = h.float().masked_fill(mask, -1e9)"),
    "mask after softmax": ("float16", "h = h.softmax(-1).masked_fill(mask, 1e9)"),
    "mask that fits": ("float16", "h = h.masked_fill(mask, -1e4)"),
    "mask of infinity": ("float16", "h = h.masked_fill(mask, float('-inf'))"),
    "mask in a disabled region": (
        "float16",
        "with torch.autocast('cuda', enabled=False):\n            h = h.float().masked_fill(mask, -1e9)",
    ),
    "eps that fits": ("float16", "h = h / (h.std() + 1e-4)"),
    "eps after norm, which is float32": ("float16", "h = h / (h.norm(dim=-1, keepdim=True) + 1e-8)"),
    "eps in bfloat16": ("bfloat16", "h = h / (h.std() + 1e-8)"),
    "eps that protects nothing needed": ("float16", "h = h + 1e-8"),
    "few positions": ("float16", "h = h + torch.arange(512, dtype=h.dtype)"),
    "positions normalised": ("float16", "h = h + (torch.arange(9000) / 9000).to(h.dtype)"),
    "positions for an embedding": ("float16", "h = h + nn.Embedding(9000, 8)(torch.arange(x.shape[1]))"),
    "grid in the unit range": ("float16", "h = h + torch.linspace(-1, 1, 4096, dtype=h.dtype)"),
    "one minus a softmax, which is float32": ("float16", "h = torch.log(1 - h.softmax(-1) + 1e-6)"),
    "one minus a gate": ("float16", "g = torch.sigmoid(h)\n        h = g * h + (1 - g) * x"),
    "logsigmoid": ("bfloat16", "h = F.logsigmoid(-h)"),
    "fft in float32": ("float16", "h = torch.fft.rfft(h.float())"),
    "norm in float32": ("float16", "h = h * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-8)"),
    "pow, which autocast runs in float32": ("float16", "h = h / (h.pow(2).mean(-1, keepdim=True) + 1e-8).sqrt()"),
    "a squared activation": ("float16", "h = F.relu(h).square()"),
    "a penalty": ("float16", "self.penalty = (h * h).mean()"),
    "unknown input": ("float16", "x = x.masked_fill(mask, -1e9)\n        h = x / (x.std() + 1e-12)"),
}


@pytest.mark.parametrize(("dtype", "body"), SILENT.values(), ids=SILENT)
def test_silent_numbers(dtype, body):
    check(FORWARD.format(dtype=dtype, body="        " + body))

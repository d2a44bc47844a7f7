"""A byte-level GPT that learns the source text of Python's own standard library."""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_core.errors import WorkloadError
from amp_core.workload import Metric, Split, Workload, param

FILES: dict[Split, tuple[str, ...]] = {
    "train": (
        "argparse.py", "ast.py", "calendar.py", "configparser.py", "csv.py", "dataclasses.py", "datetime.py",
        "difflib.py", "enum.py", "fractions.py", "functools.py", "heapq.py", "inspect.py", "ipaddress.py",
        "json/decoder.py", "json/encoder.py", "logging/__init__.py", "mailbox.py", "pickle.py", "random.py",
        "shutil.py", "socket.py", "statistics.py", "subprocess.py", "tarfile.py", "threading.py", "tokenize.py",
        "typing.py", "unittest/mock.py", "zipfile.py", "zipfile/__init__.py",
    ),
    "eval": ("contextlib.py", "locale.py", "os.py", "textwrap.py", "queue.py"),
}  # fmt: skip
NUM_BYTES = 256
EMBEDDING_STD = 0.5  # large beside the blocks' first outputs, so that a short training gets going
NUM_EVAL_WINDOWS = 128
BATCHES_PER_EPOCH = 50


class Block(nn.Module):
    """Pre-norm attention and MLP: ``(B, T, C)`` to the same."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = x + self.dropout(self._attend(self.attention_norm(x)))
        mixed: Tensor = attended + self.dropout(self._mix(self.mlp_norm(attended)))
        return mixed

    def _attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.num_heads, width // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        gathered: Tensor = self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return gathered

    def _mix(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.down(functional.gelu(self.up(x)))
        return mixed


class GPT(nn.Module):
    """Bytes ``(B, T)`` to the logits ``(B, T, 256)`` of the byte after each."""

    def __init__(self, width: int, depth: int, num_heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_BYTES, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, num_heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, NUM_BYTES, bias=False)
        for embedding in (self.embedding, self.positions):
            nn.init.normal_(embedding.weight, std=EMBEDDING_STD)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text) + self.positions(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class StdlibGPT(Workload):
    """Predicts the next byte of Python source with a small GPT.

    Trains on a fixed list of files of this Python's standard library and is evaluated on others.
    """

    title = "Stdlib GPT"
    primary = Metric("loss", higher_is_better=False, margin=0.01, relative=True, unit="nats/byte")
    steps = 150
    recipes = ("32-true", "bf16-mixed", "16-mixed")
    width: int = param(96, min=8, max=2048, help="Width of the residual stream; a multiple of the number of heads")
    depth: int = param(2, min=1, max=48, help="Number of blocks")
    num_heads: int = param(4, min=1, max=64, help="Attention heads of a block")
    context: int = param(64, min=8, max=2048, help="Bytes the model sees at once")
    dropout: float = param(0.05, min=0, max=0.9, help="Dropout after attention and MLP")
    lr: float = param(3e-3, min=0, max=1, help="Learning rate of AdamW")
    batch_size: int = param(16, min=1, max=1024, help="Windows in a training batch")

    def __init__(self, **params: object) -> None:
        super().__init__(**params)
        if self.width % self.num_heads:
            raise WorkloadError(f"width={self.width} must be a multiple of num_heads={self.num_heads}: change one")

    def model(self) -> nn.Module:
        return GPT(self.width, self.depth, self.num_heads, self.context, self.dropout)

    def batches(self, split: Split, seed: int) -> Iterable[tuple[Tensor, Tensor]]:
        return self._train_batches(seed) if split == "train" else self._eval_batches()

    def _train_batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Windows at random places."""
        text = text_of("train")
        generator = torch.Generator().manual_seed(seed)
        for _ in range(BATCHES_PER_EPOCH):
            starts = torch.randint(len(text) - self.context, (self.batch_size,), generator=generator)
            yield self._windows(text, starts)

    def _eval_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Windows spread evenly over the held-out files."""
        text = text_of("eval")
        starts = torch.linspace(0, len(text) - self.context - 1, NUM_EVAL_WINDOWS).long()
        for part in starts.split(32):  # type: ignore[no-untyped-call]
            yield self._windows(text, part)

    def _windows(self, text: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Input and target, shifted by one byte: two tensors ``(B, T)``."""
        windows = text[starts[:, None] + torch.arange(self.context + 1)].long()
        return windows[:, :-1], windows[:, 1:]

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        text, following = batch
        return functional.cross_entropy(model(text).flatten(0, 1), following.flatten())

    def metrics(self, model: nn.Module, batches: Iterable[Any]) -> dict[str, float]:
        """Mean loss in nats per byte, and the same in bits."""
        losses = [self.loss(model, batch).double() * len(batch[0]) for batch in batches]
        loss = float(torch.stack(losses).sum()) / NUM_EVAL_WINDOWS
        return {"loss": loss, "bits_per_byte": loss / math.log(2)}


@cache
def text_of(split: Split) -> Tensor:
    """The files of a split as one tensor of bytes ``(N,)``; files that this Python does not have are left out."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    texts = [(folder / name).read_bytes() for name in FILES[split] if (folder / name).is_file()]
    if not texts:
        raise WorkloadError(f"{folder} holds no source of the standard library: install this Python's .py files")
    return torch.from_numpy(np.frombuffer(b"\n".join(texts), dtype=np.uint8).copy())

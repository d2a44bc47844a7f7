"""A denoiser of dark photographs: the demo whose silent failure shows in its pictures."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor, nn
from torch.nn import functional

from amp_core.workload import Metric, Split, Workload, param

EXPOSURE = 0.1  # the brightest value of the dark photograph
NOISE = 0.15  # standard deviation of the sensor's noise, relative to the exposure
SIDE = 8  # of a patch, in pixels
PIXELS = SIDE * SIDE * 3
CROP = (slice(72, 232), slice(152, 392))  # rows and columns of the shown part of the evaluation photograph


class Denoiser(nn.Module):
    """Adds a tenth of an MLP's output to the noisy patch: ``(N, 192)`` in the dark range to ``(N, 192)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = (PIXELS, width, width, width, PIXELS)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))

    def forward(self, noisy: Tensor) -> Tensor:
        hidden = noisy * (2 / EXPOSURE) - 1
        for layer in self.layers[:-1]:
            hidden = functional.gelu(layer(hidden))
        correction: Tensor = self.layers[-1](hidden)
        return noisy + 0.1 * correction


class PhotoDenoiser(Workload):
    """Removes the noise from a photograph taken at 10 % exposure.

    Trains on 8×8 patches of scikit-learn's photograph "china" and is evaluated on "flower". A constructed small-loss
    workload: the values are small, so the gradients of the mean squared error lie below what fp16 can hold.
    """

    title = "Photo denoiser"
    primary = Metric("psnr", higher_is_better=True, margin=0.25, unit="dB", resolution=0.01)
    steps = 150
    recipes = ("32-true", "bf16-mixed", "16-mixed", {"precision": "16-mixed", "scaler": "none"})
    width: int = param(512, min=8, max=4096, help="Width of the three hidden layers")
    lr: float = param(2e-3, min=0, max=1, help="Learning rate of AdamW")
    batch_size: int = param(1024, min=1, max=4240, help="Patches in a training batch")

    def model(self) -> nn.Module:
        return Denoiser(self.width)

    def batches(self, split: Split, seed: int) -> Iterable[tuple[Tensor, Tensor]]:
        return self._train_batches(seed) if split == "train" else self._eval_batches()

    def _train_batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        clean = patches_of(photograph("china.jpg"))
        order = torch.randperm(len(clean), generator=generator)
        for start in range(0, len(clean) - self.batch_size + 1, self.batch_size):
            batch = clean[order[start : start + self.batch_size]]
            yield add_noise(batch, generator), batch

    def _eval_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        clean = patches_of(photograph("flower.jpg"))
        noisy = add_noise(clean, torch.Generator().manual_seed(0))
        for start in range(0, len(clean), 2048):
            part = slice(start, start + 2048)
            yield noisy[part], clean[part]

    def metrics(self, model: nn.Module, batches: Iterable[Any]) -> dict[str, float]:
        """PSNR in dB of the denoised photograph, limited to the range a photograph has, and the mean loss."""
        squared: list[Tensor] = []
        limited: list[Tensor] = []
        for noisy, clean in batches:
            denoised = model(noisy).float()
            squared.append((denoised - clean).double().square().flatten())
            limited.append((visible(denoised) - clean).double().square().flatten())
        error = torch.cat(limited).mean()
        return {
            "psnr": float(10 * torch.log10(EXPOSURE**2 / error)),
            "loss": float(torch.cat(squared).mean()),
        }

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.lr, eps=1e-12, fused=True)

    def artifacts(self, model: nn.Module) -> dict[str, bytes]:
        """A crop of the evaluation photograph: clean, noisy, and as this run denoises it; brightened for display."""
        clean = photograph("flower.jpg")[CROP]
        noisy = add_noise(clean, torch.Generator().manual_seed(0))
        device = next(model.parameters()).device
        denoised = model(patches_of(noisy).to(device)).float().cpu()
        pictures = {"clean": clean, "noisy": noisy, "denoised": photograph_of(denoised, clean.shape)}
        return {f"{name} (brightened ×10)": png_of(picture) for name, picture in pictures.items()}


def photograph(name: str) -> Tensor:
    """One of scikit-learn's photographs at 10 % exposure: ``(H, W, 3)``, values from 0 to `EXPOSURE`."""
    return torch.from_numpy(load_sample_image(name).astype(np.float32)) * (EXPOSURE / 255)


def patches_of(image: Tensor) -> Tensor:
    """The full patches of an image, row by row: ``(H, W, 3)`` to ``(N, 192)``."""
    rows, columns = image.shape[0] // SIDE, image.shape[1] // SIDE
    grid = image[: rows * SIDE, : columns * SIDE].reshape(rows, SIDE, columns, SIDE, 3)
    return grid.permute(0, 2, 1, 3, 4).reshape(-1, PIXELS)


def photograph_of(patches: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of `patches_of` for an image whose sides are multiples of a patch's."""
    grid = patches.reshape(shape[0] // SIDE, shape[1] // SIDE, SIDE, SIDE, 3)
    return grid.permute(0, 2, 1, 3, 4).reshape(shape)


def add_noise(clean: Tensor, generator: torch.Generator) -> Tensor:
    """The sensor's reading: Gaussian noise, which also goes below zero."""
    return clean + EXPOSURE * NOISE * torch.randn(clean.shape, generator=generator)


def visible(image: Tensor) -> Tensor:
    """The image limited to the range of a photograph."""
    return image.clamp(0, EXPOSURE)


def png_of(image: Tensor) -> bytes:
    """A PNG of an image in the dark range, brightened to the full one."""
    values = (visible(image.nan_to_num(0.0)) * (255 / EXPOSURE)).round().to(torch.uint8).numpy()
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()

"""A convolutional classifier of handwritten digits, on scikit-learn's bundled data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from amp_core.workload import Metric, Split, Workload, param

NUM_IMAGES = 1797
NUM_EVAL = 597
BRIGHTEST = 16.0  # the images count pixels of a 4×4 cell


class DigitsCNN(Workload):
    """Classifies scikit-learn's 8×8 images of handwritten digits with a small CNN.

    1,200 images to train on and 597 to evaluate on, split once for all runs.
    """

    title = "Digits CNN"
    primary = Metric("accuracy", higher_is_better=True, margin=0.005, resolution=1 / NUM_EVAL)
    steps = 300
    recipes = ("32-true", "bf16-mixed", "16-mixed")
    width: int = param(32, min=4, max=512, help="Channels of the first convolution; the second has twice as many")
    dropout: float = param(0.25, min=0, max=0.9, help="Dropout before the last layer")
    lr: float = param(5e-4, min=0, max=1, help="Learning rate of AdamW")
    batch_size: int = param(64, min=1, max=NUM_IMAGES - NUM_EVAL, help="Images in a training batch")

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, self.width, 3, padding=1),
            nn.BatchNorm2d(self.width),
            nn.ReLU(),
            nn.Conv2d(self.width, 2 * self.width, 3, padding=1),
            nn.BatchNorm2d(2 * self.width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * self.width * 16, 128),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(128, 10),
        )

    def batches(self, split: Split, seed: int) -> Iterable[tuple[Tensor, Tensor]]:
        return self._train_batches(seed) if split == "train" else self._eval_batches()

    def _train_batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        images, digits = digits_of("train")
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        for start in range(0, len(images) - self.batch_size + 1, self.batch_size):
            chosen = order[start : start + self.batch_size]
            yield images[chosen], digits[chosen]

    def _eval_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, digits = digits_of("eval")
        for start in range(0, len(images), 200):
            part = slice(start, start + 200)
            yield images[part], digits[part]


def digits_of(split: Split) -> tuple[Tensor, Tensor]:
    """Images ``(N, 1, 8, 8)`` from 0 to 1 and their digits ``(N,)``, split by one fixed shuffle."""
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(NUM_IMAGES)
    chosen = order[NUM_EVAL:] if split == "train" else order[:NUM_EVAL]
    images = torch.from_numpy(bunch.images[chosen].astype(np.float32) / BRIGHTEST)
    return images[:, None], torch.from_numpy(bunch.target[chosen].astype(np.int64))

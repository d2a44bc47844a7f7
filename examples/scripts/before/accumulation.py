"""Gradient accumulation: a step for every three batches, clipping before it."""

import torch
from torch import nn
from torch.nn import functional

generator = torch.Generator().manual_seed(1)
inputs = torch.randn(12, 16, 8, generator=generator)
targets = inputs[:, :, :4].tanh()

model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for index, (x, y) in enumerate(zip(inputs, targets, strict=True)):
    loss = functional.mse_loss(model(x), y) / 3
    loss.backward()
    if index % 3 == 2:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()

model.eval()
with torch.no_grad():
    error = sum(functional.mse_loss(model(x), y) for x, y in zip(inputs, targets, strict=True)) / len(inputs)

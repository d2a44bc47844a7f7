"""A plain training loop."""

import torch
from torch import nn
from torch.nn import functional

import amp_core

generator = torch.Generator().manual_seed(1)
inputs = torch.randn(12, 16, 8, generator=generator)
targets = inputs[:, :, :4].tanh()

amp = amp_core.Engine.from_env()
model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer = amp.prepare(model, optimizer)

for x, y in zip(inputs, targets, strict=True):
    with amp.step() as s:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        s.backward(loss)
        optimizer.step()

model.eval()
with torch.no_grad():
    error = sum(functional.mse_loss(model(x), y) for x, y in zip(inputs, targets, strict=True)) / len(inputs)
amp.evaluated({"loss": float(error)}, samples=inputs.shape[0] * inputs.shape[1])

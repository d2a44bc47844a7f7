"""A gradient penalty: the loss holds the norm of the gradient with respect to the inputs."""

import torch
from torch import nn
from torch.nn import functional

generator = torch.Generator().manual_seed(1)
inputs = torch.randn(12, 16, 8, generator=generator)
targets = inputs[:, :, :1].tanh()

model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for x, y in zip(inputs, targets, strict=True):
    optimizer.zero_grad()
    x.requires_grad_()
    output = model(x)
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    penalty = (slope.norm(dim=1) - 1.0).square().mean()
    loss = functional.mse_loss(output, y) + 0.1 * penalty
    loss.backward()
    optimizer.step()

model.eval()
with torch.no_grad():
    error = sum(functional.mse_loss(model(x), y) for x, y in zip(inputs, targets, strict=True)) / len(inputs)

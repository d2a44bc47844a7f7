"""A generative adversarial network: two models, two optimizers, both in every step."""

import torch
from torch import nn
from torch.nn import functional

noise_source = torch.Generator().manual_seed(1)
real = torch.randn(12, 32, 2, generator=noise_source) * 0.5 + 1.0
noise = torch.randn(12, 32, 4, generator=noise_source)
ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)

generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
c_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))

for x, z in zip(real, noise, strict=True):
    c_optimizer.zero_grad()
    fake = generator(z)
    right = functional.binary_cross_entropy_with_logits(critic(x), ones)
    wrong = functional.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
    c_loss = right + wrong
    c_loss.backward()
    c_optimizer.step()

    g_optimizer.zero_grad()
    g_loss = functional.binary_cross_entropy_with_logits(critic(fake), ones)
    g_loss.backward()
    g_optimizer.step()

generator.eval()
with torch.no_grad():
    distance = (generator(noise[0]).mean(dim=0) - 1.0).abs().mean()

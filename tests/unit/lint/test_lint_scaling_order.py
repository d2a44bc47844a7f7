"""Order of scale, backward, unscale_, clip, step and update, in scripts, functions, classes and under aliases."""

import pytest
from lint_sources import check

FAULTY = {
    "clip in a script": """
        import torch
        from torch import nn
        from torch.nn.utils import clip_grad_norm_

        model = nn.Linear(4, 4).cuda()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # !! clip-before-unscale
            scaler.step(opt)
            scaler.update()
    """,
    "clip, unscale too late": """
        import torch

        def train(model, opt, loader, scaler):
            for x, y in loader:
                with torch.amp.autocast("cuda"):
                    loss = model(x, y)
                scaler.scale(loss).backward()
                torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)  # !! clip-before-unscale
                scaler.unscale_(opt)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
    """,
    "clip in another method": """
        import torch
        from torch.cuda import amp  # the module, under its short name

        class Trainer:
            def __init__(self, model, optimizer):
                self.model = model
                self.optimizer = optimizer
                self.scaler = torch.amp.GradScaler("cuda")

            def fit(self, loader):
                for batch in loader:
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = self.model(batch)
                    self.scaler.scale(loss).backward()
                    self.clip()
                    self.finish()

            def clip(self):
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # !! clip-before-unscale

            def finish(self):
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()
    """,
    "wrong optimizer unscaled": """
        import torch
        from torch import nn

        g, d = nn.Linear(2, 2), nn.Linear(2, 2)
        opt_g = torch.optim.Adam(g.parameters())
        opt_d = torch.optim.Adam(d.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.mse_loss(g(x), x)
            scaler.scale(loss).backward()
            scaler.unscale_(opt_d)
            nn.utils.clip_grad_norm_(g.parameters(), 1.0)  # !! clip-before-unscale
            scaler.step(opt_g)
            scaler.update()
    """,
    "optimizer.step in a helper": """
        import torch
        import torch.nn as nn
        from torch.amp import GradScaler as Scaler, autocast as ac

        net = nn.Linear(3, 3)
        optim = torch.optim.AdamW(net.parameters())
        gs = Scaler("cuda")

        def apply(opt):
            opt.step()  # !! optimizer-step-bypasses-scaler
            opt.zero_grad()

        for x in data:
            with ac("cuda", dtype=torch.float16):
                out = net(x).sum()
            scaled = gs.scale(out)
            scaled.backward()
            apply(optim)
    """,
    "both step": """
        import torch

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            optimizer.step()  # !! optimizer-step-bypasses-scaler
            scaler.update()
    """,
    "unscaled backward": """
        import torch

        class Runner:
            def __init__(self, net):
                self.net = net
                self.opt = torch.optim.AdamW(net.parameters())
                self.scaler = torch.amp.GradScaler("cuda")

            def step(self, x, y):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = self.net(x, y)
                loss.backward()  # !! backward-without-scale
                self.scaler.step(self.opt)
                self.scaler.update()
                self.opt.zero_grad()
    """,
    "one of two losses unscaled": """
        import torch
        from torch import nn

        model = nn.Linear(2, 2)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            with torch.autocast("cuda", dtype=torch.float16):
                out = model(x)
                loss = nn.functional.mse_loss(out, y)
                penalty = out.abs().mean()
            scaler.scale(loss).backward(retain_graph=True)
            penalty.backward()  # !! backward-without-scale
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    """,
    "no update": """
        import torch

        model = torch.nn.Linear(2, 2)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")

        def main():
            for epoch in range(2):
                for x in data:
                    opt.zero_grad()
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = model(x).mean()
                    scaler.scale(loss).backward()
                    scaler.step(opt)  # !! missing-scaler-update

        main()
    """,
    "update per epoch": """
        import torch

        model = torch.nn.Linear(2, 2)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for epoch in range(2):
            for x in data:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x).mean()
                scaler.scale(loss).backward()
                scaler.step(opt)  # !! missing-scaler-update
                opt.zero_grad()
            scaler.update()
    """,
    "update in the loop over optimizers": """
        import torch
        from torch import nn

        a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        first = torch.optim.SGD(a.parameters(), lr=0.1)
        second = torch.optim.SGD(b.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = b(a(x)).mean()
            scaler.scale(loss).backward()
            for opt in (first, second):
                scaler.step(opt)
                scaler.update()  # !! scaler-update-twice-per-iteration
                opt.zero_grad()
    """,
    "update in a helper for each optimizer": """
        import torch

        class GAN:
            def __init__(self, g, d, opt_g, opt_d):
                self.g, self.d = g, d
                self.opt_g, self.opt_d = opt_g, opt_d
                self.scaler = torch.amp.GradScaler("cuda")

            def _apply(self, loss, opt):
                opt.zero_grad()
                self.scaler.scale(loss).backward()
                self.scaler.step(opt)
                self.scaler.update()  # !! scaler-update-twice-per-iteration

            def train(self, loader):
                for x, z in loader:
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss_d = self.d(x).mean() - self.d(self.g(z)).mean()
                    self._apply(loss_d, self.opt_d)
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss_g = -self.d(self.g(z)).mean()
                    self._apply(loss_g, self.opt_g)
    """,
    "unscale twice": """
        import torch

        model = torch.nn.Linear(2, 2)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(opt)  # !! unscale-more-than-once
            scaler.step(opt)
            scaler.update()
    """,
    "unscale in an inner loop of micro-batches": """
        import torch

        model = torch.nn.Linear(2, 2)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        for batch in data:
            opt.zero_grad()
            for micro in batch.chunk(4):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(micro).mean() / 4
                scaler.scale(loss).backward()
                scaler.unscale_(opt)  # !! unscale-more-than-once
            scaler.step(opt)
            scaler.update()
    """,
    "unscale with early continue": """
        import torch

        def run(model, opt, loader, accum):
            scaler = torch.amp.GradScaler("cuda")
            for i, x in enumerate(loader):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x) / accum
                scaler.scale(loss).backward()
                scaler.unscale_(opt)  # !! unscale-more-than-once
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if (i + 1) % accum != 0:
                    continue
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
    """,
    "unscale after step": """
        import torch

        def run(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.unscale_(opt)  # !! unscale-after-step
                scaler.update()
                opt.zero_grad()
    """,
    "update each micro-batch": """
        import torch

        def run(model, opt, loader, accum_steps):
            scaler = torch.amp.GradScaler("cuda")
            for i, x in enumerate(loader):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x) / accum_steps
                scaler.scale(loss).backward()
                if (i + 1) % accum_steps == 0:
                    scaler.step(opt)
                    opt.zero_grad()
                scaler.update()  # !! step-every-microbatch
    """,
    "step each micro-batch": """
        import torch

        def run(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")
            for i, x in enumerate(loader):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x) / 8
                scaler.scale(loss).backward()
                scaler.step(opt)  # !! step-every-microbatch
                scaler.update()
                last = (i + 1) % 8 == 0
                if last:
                    opt.zero_grad(set_to_none=True)
    """,
    "step in the inner loop": """
        import torch

        def run(model, opt, loader, accum):
            scaler = torch.amp.GradScaler("cuda")
            for batch in loader:
                opt.zero_grad()
                for micro in batch.chunk(accum):
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = model(micro) / accum
                    scaler.scale(loss).backward()
                    scaler.step(opt)  # !! step-every-microbatch
                    scaler.update()
    """,
    "zero_grad each micro-batch": """
        import torch

        def run(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")
            for i, x in enumerate(loader):
                opt.zero_grad()  # !! step-every-microbatch
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x) / 8
                scaler.scale(loss).backward()
                if i % 8 == 7:
                    scaler.step(opt)
                    scaler.update()
    """,
    "noise before unscale": """
        import torch

        def run(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                with torch.no_grad():
                    for p in model.parameters():
                        if p.grad is not None:
                            p.grad += 0.01 * torch.randn_like(p.grad)  # !! gradient-edit-before-unscale
                scaler.step(opt)
                scaler.update()
    """,
    "clamp by hand": """
        import torch

        class T:
            def __init__(self, model):
                self.model = model
                self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
                self.scaler = torch.amp.GradScaler("cuda")

            def step(self, x):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = self.model(x)
                self.scaler.scale(loss).backward()
                for name, p in self.model.named_parameters():
                    p.grad.data.clamp_(-1, 1)  # !! gradient-edit-before-unscale
                self.scaler.step(self.opt)
                self.scaler.update()
    """,
    "norm of scaled gradients": """
        import torch

        def run(model, opt, loader, log):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()  # !! scaled-gradients-read
                scaler.step(opt)
                scaler.update()
                log(norm)
    """,
    "gradient penalty": """
        import torch

        def run(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                x.requires_grad_(True)
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                grads = torch.autograd.grad(outputs=scaler.scale(loss), inputs=model.parameters(), create_graph=True)
                with torch.autocast("cuda", dtype=torch.float16):
                    norm = 0
                    for g in grads:
                        norm = norm + g.pow(2).sum()  # !! gradient-penalty-on-scaled-gradients
                    loss = loss + norm.sqrt()
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
    """,
    "gradient penalty of a critic": """
        import torch
        from torch import nn

        critic = nn.Linear(2, 1)
        opt = torch.optim.Adam(critic.parameters())
        scaler = torch.amp.GradScaler("cuda")

        def penalty(x):
            x = x.detach().requires_grad_(True)
            with torch.autocast("cuda", dtype=torch.float16):
                out = critic(x).sum()
            grad, = torch.autograd.grad(scaler.scale(out), x, create_graph=True)
            return (grad.norm(2, dim=1) - 1).square().mean()  # !! gradient-penalty-on-scaled-gradients

        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = critic(x).mean()
            scaler.scale(loss + penalty(x)).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    """,
    "scaled loss logged": """
        import torch

        def run(model, opt, loader, writer):
            scaler = torch.amp.GradScaler("cuda")
            total = 0.0
            for x in loader:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaled_loss = scaler.scale(loss)
                scaled_loss.backward()
                scaler.step(opt)
                scaler.update()
                total += scaled_loss.item()  # !! scaled-loss-used-as-metric
            return total
    """,
    "scaled loss printed": """
        import torch

        def run(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                loss = scaler.scale(loss)
                loss.backward()
                print(f"loss {loss:.4f}")  # !! scaled-loss-used-as-metric
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
    """,
    "accelerate clips with torch": """
        import torch
        from accelerate import Accelerator

        accelerator = Accelerator(mixed_precision="fp16")
        model = torch.nn.Linear(2, 2)
        opt = torch.optim.AdamW(model.parameters())
        model, opt, loader = accelerator.prepare(model, opt, data)
        for x in loader:
            loss = model(x).mean()
            accelerator.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # !! clip-before-unscale
            opt.step()
            opt.zero_grad()
    """,
    "accelerate without its backward": """
        import torch
        from accelerate import Accelerator

        accelerator = Accelerator(mixed_precision="fp16")
        model = torch.nn.Linear(2, 2)
        opt = torch.optim.AdamW(model.parameters())
        model, opt = accelerator.prepare(model, opt)
        for x in data:
            loss = model(x).mean()
            loss.backward()  # !! backward-without-scale
            opt.step()
            opt.zero_grad()
    """,
}


@pytest.mark.parametrize("source", FAULTY.values(), ids=FAULTY)
def test_faulty_order(source):
    check(source)

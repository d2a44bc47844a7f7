"""Correct programs, after the recipes of PyTorch's AMP pages and common frameworks: no finding of any severity."""

import pytest
from lint_sources import check

RECIPES = {
    "typical training": """
        import torch
        from torch import nn, optim

        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
        optimizer = optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler()
        for epoch in epochs:
            for input, target in data:
                optimizer.zero_grad()
                with torch.autocast(device_type="cuda", dtype=torch.float16):
                    output = model(input)
                    loss = loss_fn(output, target)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    """,
    "clipping": """
        import torch

        scaler = torch.amp.GradScaler()
        for epoch in epochs:
            for input, target in data:
                optimizer.zero_grad()
                with torch.autocast(device_type="cuda", dtype=torch.float16):
                    loss = loss_fn(model(input), target)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                scaler.step(optimizer)
                scaler.update()
    """,
    "accumulation": """
        import torch

        scaler = torch.amp.GradScaler()
        for epoch in epochs:
            for i, (input, target) in enumerate(data):
                with torch.autocast(device_type="cuda", dtype=torch.float16):
                    loss = loss_fn(model(input), target)
                    loss = loss / iters_to_accumulate
                scaler.scale(loss).backward()
                if (i + 1) % iters_to_accumulate == 0:
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()
    """,
    "gradient penalty": """
        import torch

        scaler = torch.amp.GradScaler()
        for epoch in epochs:
            for input, target in data:
                optimizer.zero_grad()
                with torch.autocast(device_type="cuda", dtype=torch.float16):
                    loss = loss_fn(model(input), target)
                scaled_params = torch.autograd.grad(
                    outputs=scaler.scale(loss), inputs=model.parameters(), create_graph=True
                )
                inv_scale = 1.0 / scaler.get_scale()
                grad_params = [p * inv_scale for p in scaled_params]
                with torch.autocast(device_type="cuda", dtype=torch.float16):
                    norm = 0
                    for grad in grad_params:
                        norm += grad.pow(2).sum()
                    norm = norm.sqrt()
                    loss = loss + norm
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    """,
    "several models, losses and optimizers": """
        import torch

        scaler = torch.amp.GradScaler()
        for epoch in epochs:
            for input, target in data:
                optimizer0.zero_grad()
                optimizer1.zero_grad()
                with torch.autocast(device_type="cuda", dtype=torch.float16):
                    output0 = model0(input)
                    output1 = model1(input)
                    loss0 = loss_fn(2 * output0 + 3 * output1, target)
                    loss1 = loss_fn(3 * output0 - 5 * output1, target)
                scaler.scale(loss0).backward(retain_graph=True)
                scaler.scale(loss1).backward()
                scaler.unscale_(optimizer0)
                scaler.step(optimizer0)
                scaler.step(optimizer1)
                scaler.update()
    """,
    "DataParallel": """
        import torch
        from torch import nn

        class MyModel(nn.Module):
            @torch.autocast(device_type="cuda", dtype=torch.float16)
            def forward(self, x):
                return x * 2

        model = MyModel()
        dp_model = nn.DataParallel(model)
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            output = dp_model(input)
            loss = loss_fn(output)
    """,
    "DistributedDataParallel": """
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        model = DDP(nn.Linear(8, 8).cuda(rank), device_ids=[rank])
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for i, (x, y) in enumerate(loader):
            sync = (i + 1) % 4 == 0
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.mse_loss(model(x), y) / 4
            scaler.scale(loss).backward()
            if sync:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
    """,
    "custom functions": """
        import torch
        from torch.amp import custom_bwd, custom_fwd

        class MyMM(torch.autograd.Function):
            @staticmethod
            @custom_fwd(device_type="cuda")
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a.mm(b)

            @staticmethod
            @custom_bwd(device_type="cuda")
            def backward(ctx, grad):
                a, b = ctx.saved_tensors
                return grad.mm(b.t()), a.t().mm(grad)

        class Float32Only(torch.autograd.Function):
            @staticmethod
            @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return fused_kernel(x)

            @staticmethod
            @custom_bwd(device_type="cuda")
            def backward(ctx, grad):
                return fused_kernel_backward(grad)

        mymm = MyMM.apply
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            output = mymm(input1, input2)
            other = Float32Only.apply(output)
    """,
    "straight-through function": """
        import torch

        class Round(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.round()

            @staticmethod
            def backward(ctx, grad):
                return grad

        with torch.autocast("cuda", dtype=torch.float16):
            y = Round.apply(model(x))
    """,
    "saving and resuming": """
        import torch

        def save(path, model, optimizer, scaler):
            checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            checkpoint["scaler"] = scaler.state_dict()
            torch.save(checkpoint, path)

        def load(path, model, optimizer, scaler):
            checkpoint = torch.load(path, weights_only=True)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scaler.load_state_dict(checkpoint["scaler"])
    """,
    "a flag switches everything": """
        import argparse
        import torch

        parser = argparse.ArgumentParser()
        parser.add_argument("--amp", action="store_true")
        args = parser.parse_args()

        def train(model, optimizer, loader, device):
            scaler = torch.amp.GradScaler("cuda") if args.amp else None
            for x, y in loader:
                with torch.autocast("cuda", enabled=scaler is not None):
                    loss = model(x, y)
                optimizer.zero_grad()
                if args.amp:
                    scaler.scale(loss).backward()
                    scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
    """,
    "a scaler or none": """
        import torch

        def train_one_epoch(model, optimizer, loader, scaler=None):
            for x, y in loader:
                with torch.amp.autocast("cuda", enabled=scaler is not None):
                    loss = model(x, y)
                optimizer.zero_grad()
                if scaler is not None:
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    loss.backward()
                    optimizer.step()
    """,
    "bf16 without a scaler": """
        import torch

        model = torch.compile(torch.nn.Linear(8, 8).cuda())
        opt = torch.optim.AdamW(model.parameters(), fused=True)
        for step, x in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).float().pow(2).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
    """,
    "gan with one update": """
        import torch
        from torch import nn
        from torch.nn import functional as F

        g, d = nn.Linear(8, 2).cuda(), nn.Linear(2, 1).cuda()
        opts = [torch.optim.Adam(m.parameters(), lr=2e-4) for m in (g, d)]
        opt_g, opt_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for real in data:
            for p in d.parameters():
                p.requires_grad_(True)
            with torch.autocast("cuda", dtype=torch.float16):
                fake = g(torch.randn(8, 8, device="cuda"))
                loss_d = F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()
            opt_d.zero_grad()
            scaler.scale(loss_d).backward()
            scaler.unscale_(opt_d)
            nn.utils.clip_grad_norm_(d.parameters(), 1.0)
            scaler.step(opt_d)
            with torch.autocast("cuda", dtype=torch.float16):
                loss_g = F.softplus(-d(fake)).mean()
            opt_g.zero_grad()
            scaler.scale(loss_g).backward()
            scaler.step(opt_g)
            scaler.update()
    """,
    "one scaler per optimizer": """
        import torch
        from torch import nn

        g, d = nn.Linear(8, 2), nn.Linear(2, 1)
        opt_g, opt_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
        scaler_g, scaler_d = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss_d = d(x).mean()
            scaler_d.scale(loss_d).backward()
            scaler_d.step(opt_d)
            scaler_d.update()
            with torch.autocast("cuda", dtype=torch.float16):
                loss_g = d(g(x)).mean()
            scaler_g.scale(loss_g).backward()
            scaler_g.step(opt_g)
            scaler_g.update()
    """,
    "an fp32 optimizer beside a scaled one": """
        import torch
        from torch import nn

        body, head = nn.Linear(8, 8), nn.Linear(8, 1)
        opt_body, opt_head = torch.optim.AdamW(body.parameters()), torch.optim.AdamW(head.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            with torch.autocast("cuda", dtype=torch.float16):
                h = body(x)
                loss = h.float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt_body)
            scaler.update()
            opt_body.zero_grad()
            other = nn.functional.mse_loss(head(h.detach().float()), y)
            other.backward()
            opt_head.step()
            opt_head.zero_grad()
    """,
    "attention": """
        import math
        import torch
        from torch import nn

        class Attention(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.qkv = nn.Linear(dim, 3 * dim)

            def forward(self, x, mask):
                q, k, v = self.qkv(x).chunk(3, -1)
                scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
                scores = scores.masked_fill(mask, float("-inf"))
                scores = scores.float().masked_fill(~mask, -1e9)
                return scores.softmax(-1).to(v.dtype) @ v

        net = Attention(16)
        opt = torch.optim.AdamW(net.parameters(), eps=1e-8)
        scaler = torch.amp.GradScaler("cuda")
        for x, mask in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(x, mask).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "rotary embedding in float32": """
        import torch
        from torch import nn

        class Rope(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim)))

            def forward(self, x):
                with torch.autocast("cuda", enabled=False):
                    t = torch.arange(x.shape[1], device=x.device).float()
                    angles = torch.outer(t, self.inv_freq.float())
                return x * angles.cos().to(x.dtype)

        rope = Rope(64)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = rope(torch.randn(2, 4096, 32))
    """,
    "normalisations": """
        import torch
        from torch import nn
        import torch.nn.functional as F

        class RMSNorm(nn.Module):
            def __init__(self, dim, eps=1e-6):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(dim))
                self.eps = eps

            def forward(self, x):
                y = x.float()
                y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
                return (y * self.weight).type_as(x)

        net = nn.Sequential(nn.Linear(8, 8), RMSNorm(8), nn.LayerNorm(8, eps=1e-12), nn.Linear(8, 8))
        with torch.autocast("cuda", dtype=torch.float16):
            h = F.normalize(net(x), dim=-1, eps=1e-12)
            p = torch.softmax(h, -1)
            entropy = -(p * torch.log(p + 1e-9)).sum()
    """,
    "inference in half": """
        import torch

        model = torch.hub.load("x", "y").eval().half().cuda()
        with torch.inference_mode():
            out = model(image.half())
    """,
    "export after training": """
        import copy
        import torch
        from torch import nn

        model = nn.Linear(8, 8).cuda()
        opt = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).float().mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        torch.save(copy.deepcopy(model).half().state_dict(), "half.pt")
        model.eval().half()
        torch.onnx.export(model, x.half(), "model.onnx")
    """,
    "lightning": """
        import lightning as L
        import torch
        from torch import nn

        class Lit(L.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(8, 1)

            def training_step(self, batch, batch_idx):
                x, y = batch
                loss = nn.functional.mse_loss(self.net(x), y)
                self.log("train/loss", loss)
                return loss

            def configure_optimizers(self):
                opt = torch.optim.AdamW(self.parameters())
                return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.StepLR(opt, 10)}

        trainer = L.Trainer(precision="16-mixed", gradient_clip_val=1.0)
        trainer.fit(Lit(), loader)
    """,
    "manual optimization in lightning": """
        import pytorch_lightning as pl
        import torch

        class Gan(pl.LightningModule):
            def training_step(self, batch, batch_idx):
                opt_g, opt_d = self.optimizers()
                self.toggle_optimizer(opt_g)
                loss = self.generator_loss(batch)
                self.manual_backward(loss)
                self.clip_gradients(opt_g, gradient_clip_val=0.5)
                opt_g.step()
                opt_g.zero_grad()

        pl.Trainer(precision="16-mixed").fit(Gan())
    """,
    "accelerate": """
        import torch
        from accelerate import Accelerator

        accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=4)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, data, scheduler)
        for x, y in loader:
            with accelerator.accumulate(model):
                with accelerator.autocast():
                    loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accelerator.save_state("out")
    """,
    "transformers": """
        import torch
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        model = AutoModelForCausalLM.from_pretrained("gpt2")
        args = TrainingArguments("out", fp16=True, per_device_train_batch_size=4)
        Trainer(model=model, args=args, train_dataset=data).train()
    """,
    "fabric": """
        import lightning as L
        import torch

        fabric = L.Fabric(precision="16-mixed")
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer = fabric.setup(model, optimizer)
        for x in data:
            optimizer.zero_grad()
            loss = model(x).mean()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
    """,
    "deepspeed": """
        import deepspeed
        import torch

        engine, optimizer, _, _ = deepspeed.initialize(model=net, config={"fp16": {"enabled": True}})
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = engine(x)
            engine.backward(loss)
            engine.step()
    """,
    "context in an attribute": """
        import contextlib
        import torch

        class Trainer:
            def __init__(self, model, precision):
                self.model = model
                self.opt = torch.optim.AdamW(model.parameters())
                dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
                self.ctx = (
                    contextlib.nullcontext()
                    if precision == "fp32"
                    else torch.autocast("cuda", dtype=dtypes[precision])
                )
                self.scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")

            def step(self, x):
                with self.ctx:
                    loss = self.model(x)
                self.scaler.scale(loss).backward()
                self.scaler.step(self.opt)
                self.scaler.update()
                self.opt.zero_grad(set_to_none=True)
    """,
    "schedule per epoch": """
        import torch

        def main(model, optimizer, loader):
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
            scaler = torch.amp.GradScaler("cuda")
            for epoch in range(90):
                for x in loader:
                    optimizer.zero_grad()
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = model(x)
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                scheduler.step()
    """,
    "schedule guarded by a flag": """
        import torch

        def main(model, optimizer, scheduler, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scale = scaler.get_scale()
                scaler.update()
                skip_lr_sched = scale > scaler.get_scale()
                if not skip_lr_sched:
                    scheduler.step()
    """,
    "ema in float32": """
        import copy
        import torch

        def train(model, optimizer, loader):
            ema = copy.deepcopy(model)
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                with torch.no_grad():
                    for e, p in zip(ema.parameters(), model.parameters()):
                        e.lerp_(p, 0.001)
    """,
    "noise after unscale": """
        import torch

        def train(model, optimizer, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                for p in model.parameters():
                    p.grad.add_(torch.randn_like(p.grad), alpha=0.01)
                scaler.step(optimizer)
                scaler.update()
    """,
    "skipping bad batches": """
        import torch

        def train(model, optimizer, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                if not torch.isfinite(loss):
                    continue
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
    """,
    "sweep over seeds": """
        import torch
        from torch import nn

        def run(seed, amp):
            torch.manual_seed(seed)
            model = nn.Linear(8, 8).cuda()
            opt = torch.optim.AdamW(model.parameters())
            scaler = torch.amp.GradScaler("cuda", enabled=amp)
            for x in data:
                with torch.autocast("cuda", dtype=torch.float16, enabled=amp):
                    loss = model(x).float().mean()
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()

        for seed in range(5):
            for amp in (False, True):
                run(seed, amp)
    """,
    "micro-batches in an inner loop": """
        import torch

        def train(model, optimizer, loader, accum):
            scaler = torch.amp.GradScaler("cuda")
            for batch in loader:
                for micro in batch.chunk(accum):
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = model(micro) / accum
                    scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
    """,
    "old names for the device": """
        import torch

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = torch.nn.Linear(8, 8).to(device)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device.type)
        for x in data:
            with torch.autocast(device.type, dtype=torch.float16):
                loss = model(x.to(device)).float().mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    """,
}


@pytest.mark.parametrize("source", RECIPES.values(), ids=RECIPES)
def test_correct_programs_are_silent(source):
    check(source)

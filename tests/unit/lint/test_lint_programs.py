"""Programs of many styles, with their findings marked; those without a mark are correct."""

import pytest
from lint_sources import check

PROGRAMS = {
    "micro step": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        ACCUM = 4
        model = nn.Linear(4, 4).to(device)
        opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler(device)
        for i in range(16):
            x = torch.randn(4, 4, device=device)
            with torch.autocast(device, dtype=torch.float16):
                loss = model(x).float().pow(2).mean() / ACCUM
            scaler.scale(loss).backward()
            scaler.step(opt)  # !! step-every-microbatch
            scaler.update()
            if (i + 1) % ACCUM == 0:
                opt.zero_grad()
    """,
    "get_scale print": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = nn.Linear(4, 4).to(device)
        opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler(device)
        for i in range(16):
            x = torch.randn(4, 4, device=device)
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = model(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            print(i, loss.item(), scaler.get_scale())
    """,
    "dynamic skip with manual nan check": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = nn.Linear(4, 4).to(device)
        opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler(device)
        for i in range(16):
            x = torch.randn(4, 4, device=device)
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = model(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if torch.isfinite(norm):
                scaler.step(opt)
            scaler.update()
    """,
    "GAN with train_d/train_g funcs": """
        import torch
        from torch import nn
        device = "cuda"
        G = nn.Linear(4, 4).to(device); D = nn.Linear(4, 1).to(device)
        og = torch.optim.Adam(G.parameters()); od = torch.optim.Adam(D.parameters())
        scaler = torch.amp.GradScaler(device)
        def train_d(x):
            with torch.autocast(device, dtype=torch.float16):
                loss = D(x).mean() - D(G(x).detach()).mean()
            od.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(od)
        def train_g(x):
            with torch.autocast(device, dtype=torch.float16):
                loss = -D(G(x)).mean()
            og.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(og)
        for i in range(10):
            x = torch.randn(4, 4, device=device)
            train_d(x)
            train_g(x)
            scaler.update()
    """,
    "n critic clean": """
        import torch
        from torch import nn
        device = "cuda"
        G = nn.Linear(4, 4).to(device); D = nn.Linear(4, 1).to(device)
        og = torch.optim.Adam(G.parameters()); od = torch.optim.Adam(D.parameters())
        sd = torch.amp.GradScaler(device)
        sg = torch.amp.GradScaler(device)
        for i in range(10):
            x = torch.randn(4, 4, device=device)
            for _ in range(5):
                with torch.autocast(device, dtype=torch.float16):
                    loss = D(x).mean() - D(G(x).detach()).mean()
                od.zero_grad()
                sd.scale(loss).backward()
                sd.step(od)
                sd.update()
            with torch.autocast(device, dtype=torch.float16):
                loss = -D(G(x)).mean()
            og.zero_grad()
            sg.scale(loss).backward()
            sg.step(og)
            sg.update()
    """,
    "distill: teacher half": """
        import torch, copy
        from torch import nn
        teacher = nn.Linear(4, 4).cuda().half().eval()
        student = nn.Linear(4, 4).cuda()
        opt = torch.optim.AdamW(student.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            with torch.no_grad():
                t = teacher(x.half())
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.mse_loss(student(x), t.float())
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "eval fp32 after training": """
        import torch
        from torch import nn
        device = "cuda"
        model = nn.Linear(4, 4).to(device)
        opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler(device)
        for i in range(16):
            x = torch.randn(4, 4, device=device)
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = model(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                print(model(torch.randn(2, 4, device=device)).sum().item())
    """,
    "torch.save in dict with var": """
        import torch
        from torch import nn
        device = "cuda"
        model = nn.Linear(4, 4).to(device)
        opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler(device)
        def save_checkpoint(path, **objects):
            torch.save({k: v.state_dict() for k, v in objects.items()}, path)
        for i in range(16):
            x = torch.randn(4, 4, device=device)
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = model(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        save_checkpoint("x.pt", model=model, opt=opt, scaler=scaler)
    """,
    "half input normalise": """
        import torch
        import torch.nn.functional as F
        emb = torch.randn(4, 8).half()
        emb = F.normalize(emb, dim=-1, eps=1e-12)  # !! eps-below-half-range
        sim = emb @ emb.t()
    """,
    "adam eps fp16 dtype var": """
        import torch
        from torch import nn
        dtype = torch.float16
        net = nn.Linear(4, 4, dtype=dtype, device="cuda")
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3)  # !! adam-eps-on-half-params
        for i in range(4):
            x = torch.randn(4, 4, device="cuda", dtype=dtype)
            loss = net(x).float().square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "tf32 baseline": """
        import torch
        from torch import nn
        torch.backends.cuda.matmul.allow_tf32 = True  # !! tf32-in-fp32-baseline
        def train(amp):
            torch.manual_seed(0)
            model = nn.Linear(4, 4).cuda()
            opt = torch.optim.SGD(model.parameters(), lr=.1)
            for i in range(16):
                x = torch.randn(4, 4, device="cuda")
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
                    loss = model(x).float().pow(2).mean()
                loss.backward()
                opt.step()
            return loss.item()
        fp32 = train(amp=False)
        bf16 = train(amp=True)
    """,
    "ema half via state dict": """
        import torch, copy
        from torch import nn
        model = nn.Linear(4, 4).cuda()
        ema = {k: v.detach().clone().half() for k, v in model.state_dict().items()}
        opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            with torch.no_grad():
                for k, v in model.state_dict().items():
                    ema[k].mul_(0.999).add_(v.half(), alpha=0.001)  # !! ema-in-half
    """,
    "ema class half buffers": """
        import torch, copy
        from torch import nn
        class EMA:
            def __init__(self, model, decay=0.999):
                self.decay = decay
                self.shadow = [p.detach().clone().half() for p in model.parameters()]
            @torch.no_grad()
            def update(self, model):
                for s, p in zip(self.shadow, model.parameters()):
                    s.mul_(self.decay).add_(p.half(), alpha=1 - self.decay)  # !! ema-in-half
        model = nn.Linear(4, 4).cuda()
        ema = EMA(model)
        opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            ema.update(model)
    """,
    "metric accumulate half": """
        import torch
        correct = torch.zeros((), dtype=torch.float16, device="cuda")
        n = 0
        with torch.inference_mode():
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    out = model(x)
                correct += (out.argmax(1) == y).sum()  # !! accumulation-in-half
    """,
    "weight decay by hand before unscale": """
        import torch
        from torch import nn
        model = nn.Linear(4, 4).cuda()
        opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            for p in model.parameters():
                p.grad = p.grad + 0.1 * p  # !! gradient-edit-before-unscale
            scaler.step(opt)
            scaler.update()
    """,
    "BCE script": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid()).to(device)
        criterion = nn.BCELoss()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler(device)
        for _ in range(3):
            x = torch.randn(16, 8, device=device); y = torch.rand(16, 1, device=device).round()
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                p = model(x)
                loss = criterion(p, y)  # !! binary-cross-entropy-under-autocast
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "BCE fixed by disabled region": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid()).to(device)
        criterion = nn.BCELoss()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler(device)
        for _ in range(3):
            x = torch.randn(16, 8, device=device); y = torch.rand(16, 1, device=device).round()
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                p = model(x)
                with torch.autocast(device, enabled=False):
                    loss = criterion(p.float(), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "BCE outside": """
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid()).cuda()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                p = model(x)
            loss = nn.functional.binary_cross_entropy(p.float(), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "custom fn used in module": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        class ScaledLinear(torch.autograd.Function):  # !! custom-function-without-custom-fwd
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x.mm(w.t())
            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g.mm(w), g.t().mm(x)
        w = nn.Parameter(torch.randn(4, 8, device=device))
        enc = nn.Linear(8, 8).to(device)
        opt = torch.optim.SGD([w, *enc.parameters()], lr=0.1)
        scaler = torch.amp.GradScaler(device)
        for _ in range(2):
            x = torch.randn(16, 8, device=device)
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = ScaledLinear.apply(enc(x), w).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "scheduler in script": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = nn.Linear(8, 1).to(device)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 10))
        scaler = torch.amp.GradScaler(device)
        for step in range(10):
            x = torch.randn(16, 8, device=device)
            opt.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.float16):
                loss = nn.functional.mse_loss(model(x), x[:, :1])
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            sched.step()  # !! scheduler-after-skipped-step
    """,
    "scheduler with nonfloat flag": """
        import torch
        from torch import nn
        device = "cuda"
        model = nn.Linear(8, 1).to(device)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 10))
        scaler = torch.amp.GradScaler(device)
        for step in range(10):
            x = torch.randn(16, 8, device=device)
            opt.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.float16):
                loss = nn.functional.mse_loss(model(x), x[:, :1])
            scaler.scale(loss).backward()
            before = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            stepped = scaler.get_scale() >= before
            if stepped:
                sched.step()
    """,
    "accumulate clip then leftover": """
        import torch
        from torch import nn
        device = "cuda"
        model = nn.Linear(8, 1).to(device)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler(device)
        N = 4
        batches = [torch.randn(16, 8, device=device) for _ in range(10)]
        for i, x in enumerate(batches):
            is_last = i + 1 == len(batches)
            with torch.autocast(device, dtype=torch.float16):
                loss = nn.functional.mse_loss(model(x), x[:, :1]) / N
            scaler.scale(loss).backward()
            if (i + 1) % N == 0 or is_last:
                scaler.unscale_(opt)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
    """,
    "eps in module layer": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        class Norm(nn.Module):
            def __init__(self, d, eps=1e-12):
                super().__init__()
                self.g = nn.Parameter(torch.ones(d)); self.eps = eps
            def forward(self, x):
                mu = x.mean(-1, keepdim=True)
                sd = x.std(-1, keepdim=True)
                return self.g * (x - mu) / (sd + self.eps)  # !! eps-below-half-range
        net = nn.Sequential(nn.Linear(8, 8), Norm(8), nn.Linear(8, 1)).to(device)
        opt = torch.optim.AdamW(net.parameters())
        scaler = torch.amp.GradScaler(device)
        for _ in range(2):
            x = torch.randn(4, 8, device=device)
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = net(x).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "cosine similarity by hand": """
        import torch
        from torch import nn
        device = "cuda"
        net = nn.Linear(8, 8).to(device)
        with torch.autocast(device, dtype=torch.float16):
            a, b = net(torch.randn(4, 8)), net(torch.randn(4, 8))
            cos = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + 1e-8)
    """,
    "rope in bf16": """
        import torch
        from torch import nn
        device = "cuda"
        class Rope(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, d, 2) / d)))
            def forward(self, x):
                t = torch.arange(x.size(1), device=x.device, dtype=x.dtype)  # !! positions-in-half
                ang = t[:, None] * self.inv_freq[None].to(x.dtype)
                return x * torch.cos(ang).repeat(1, 2)
        net = nn.Sequential(nn.Linear(8, 8), Rope(8)).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            out = net(torch.randn(2, 4096, 8))
    """,
    "rope matmul bf16": """
        import torch
        from torch import nn
        device = "cuda"
        class Rope(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, d, 2) / d)))
            def forward(self, x):
                t = torch.arange(x.size(1), device=x.device).float()
                ang = t[:, None] @ self.inv_freq[None]  # !! positions-in-half
                return x * torch.cos(ang).repeat(1, 2)
        net = nn.Sequential(nn.Linear(8, 8), Rope(8)).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            out = net(torch.randn(2, 4096, 8))
    """,
    "cpu device const and cuda autocast": """
        import torch
        from torch import nn
        model = nn.Linear(8, 1)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step in range(10):
            x = torch.randn(16, 8)
            opt.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):  # !! autocast-device-mismatch
                loss = nn.functional.mse_loss(model(x), x[:, :1])
            loss.backward()
            opt.step()
    """,
    "cuda model cpu autocast": """
        import torch
        from torch import nn
        model = nn.Linear(8, 1).cuda()
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step in range(10):
            x = torch.randn(16, 8, device="cuda")
            opt.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):  # !! autocast-device-mismatch
                loss = nn.functional.mse_loss(model(x), x[:, :1])
            loss.backward()
            opt.step()
    """,
    "scaler default device with device var": """
        import torch
        from torch import nn
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = nn.Linear(8, 1).to(device)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler()
        for step in range(10):
            x = torch.randn(16, 8, device=device)
            opt.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.float16):
                loss = nn.functional.mse_loss(model(x), x[:, :1])
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "checkpoint in class with only model opt": """
        import torch
        from torch import nn
        class T:
            def __init__(self, net, opt):
                self.net, self.opt = net, opt
                self.grad_scaler = torch.amp.GradScaler("cuda")
            def step(self, x):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = self.net(x)
                self.grad_scaler.scale(loss).backward()
                self.grad_scaler.step(self.opt)
                self.grad_scaler.update()
                self.opt.zero_grad()
            def save(self, path):
                state = dict(net=self.net.state_dict(), opt=self.opt.state_dict())
                torch.save(state, path)  # !! checkpoint-missing-scaler-state
    """,
    "resume without scaler load in function": """
        import torch
        from torch import nn
        model = nn.Linear(2, 2).cuda(); opt = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        def save(p):
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "scaler": scaler.state_dict()}, p)
        def resume(p):
            ck = torch.load(p)  # !! scaler-state-not-restored
            model.load_state_dict(ck["model"])
            opt.load_state_dict(ck["opt"])
        def train():
            for x in data:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x).float().mean()
                scaler.scale(loss).backward()
                scaler.step(opt); scaler.update(); opt.zero_grad()
        if __name__ == "__main__":
            resume("a"); train(); save("a")
    """,
    "autocast whole step incl optimizer, not loop": """
        import torch
        from torch import nn
        model = nn.Linear(2, 2).cuda(); opt = torch.optim.AdamW(model.parameters())
        for x in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).float().mean()
                loss.backward()  # !! backward-inside-autocast
                opt.step()
    """,
    "nested function disabled region w/ cdist": """
        import torch
        from torch import nn
        enc = nn.Linear(8, 8).cuda()
        opt = torch.optim.AdamW(enc.parameters()); scaler = torch.amp.GradScaler("cuda")
        for x in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                z = enc(x)
                with torch.autocast("cuda", enabled=False):
                    d = torch.cdist(z, z)  # !! autocast-disabled-without-upcast
                loss = d.mean()
            scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
    """,
    "fp32 softmax island decorated": """
        import torch
        from torch import nn
        class Loss(nn.Module):
            @torch.autocast("cuda", enabled=False)
            def forward(self, logits, y):
                return nn.functional.cross_entropy(logits, y)  # !! autocast-disabled-without-upcast
        net = nn.Linear(8, 8).cuda(); crit = Loss()
        opt = torch.optim.AdamW(net.parameters()); scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = crit(net(x), y)
            scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
    """,
    "div before update correct": """
        import torch
        from torch import nn
        device = "cuda"
        model = nn.Linear(8, 1).to(device); opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler(device)
        hist = []
        for step in range(10):
            x = torch.randn(16, 8, device=device)
            opt.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.float16):
                loss = nn.functional.mse_loss(model(x), x[:, :1])
            scaled = scaler.scale(loss)
            scaled.backward()
            hist.append(scaled.item() / scaler.get_scale())
            scaler.step(opt)
            scaler.update()
    """,
    "running loss accumulates scaled": """
        import torch
        from torch import nn
        device = "cuda"
        model = nn.Linear(8, 1).to(device); opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler(device)
        running = 0.0
        for step in range(10):
            x = torch.randn(16, 8, device=device)
            opt.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.float16):
                loss = nn.functional.mse_loss(model(x), x[:, :1])
            loss = scaler.scale(loss)
            loss.backward()
            scaler.step(opt)
            scaler.update()
            running += float(loss)  # !! scaled-loss-used-as-metric
        print(running)
    """,
    "train_step helper returns": """
        import torch
        from torch import nn
        def train_step(model, batch, optimizer, scaler, clip=1.0):
            x, y = batch
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)  # !! clip-before-unscale
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()
    """,
    "micro-batch no update rule helper returning": """
        import torch
        from torch import nn
        class Trainer:
            def __init__(self, model, optimizer, accumulate):
                self.model = model; self.optimizer = optimizer; self.accumulate = accumulate
                self.scaler = torch.amp.GradScaler("cuda")
                self.i = 0
            def training_step(self, x, y):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = nn.functional.cross_entropy(self.model(x), y) / self.accumulate
                self.scaler.scale(loss).backward()
                self.i += 1
                if self.i % self.accumulate == 0:
                    self.optimizer_step()
            def optimizer_step(self):
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad(set_to_none=True)
    """,
    "class, unscale each micro": """
        import torch
        from torch import nn
        class Trainer:
            def __init__(self, model, optimizer, accumulate):
                self.model = model; self.optimizer = optimizer; self.accumulate = accumulate
                self.scaler = torch.amp.GradScaler("cuda")
            def fit(self, loader):
                for i, (x, y) in enumerate(loader):
                    self.training_step(x, y)
                    if (i + 1) % self.accumulate == 0:
                        self.scaler.step(self.optimizer)
                        self.scaler.update()
                        self.optimizer.zero_grad()
            def training_step(self, x, y):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = nn.functional.cross_entropy(self.model(x), y) / self.accumulate
                self.scaler.scale(loss).backward()
                self.scaler.unscale_(self.optimizer)  # !! unscale-more-than-once
    """,
    "closure for SAM 2 steps clean": """
        import torch
        from torch import nn
        model = nn.Linear(8, 8).cuda(); opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            for _ in range(2):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = nn.functional.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
                scaler.unscale_(opt)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
    """,
    "grad norm logged before clip after unscale": """
        import torch
        from torch import nn
        model = nn.Linear(8, 8).cuda(); opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            total = torch.sqrt(sum(p.grad.float().pow(2).sum() for p in model.parameters()))
            coef = 1.0 / (total + 1e-6)
            for p in model.parameters():
                p.grad.mul_(coef.clamp(max=1.0))
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    """,
    "manual clip on scaled": """
        import torch
        from torch import nn
        model = nn.Linear(8, 8).cuda(); opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            total = torch.sqrt(sum(p.grad.float().pow(2).sum() for p in model.parameters()))  # !! scaled-gradients-read
            coef = 1.0 / (total + 1e-6)
            for p in model.parameters():
                p.grad.mul_(coef.clamp(max=1.0))
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    """,
    "nan_to_num on grads": """
        import torch
        from torch import nn
        model = nn.Linear(8, 8).cuda(); opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            for p in model.parameters():
                torch.nan_to_num_(p.grad, nan=0.0, posinf=0.0, neginf=0.0)  # !! gradient-edit-before-unscale
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    """,
    "dp noise in opt func": """
        import torch
        from torch import nn
        def add_noise(parameters, sigma):
            for p in parameters:
                p.grad.add_(torch.randn_like(p.grad), alpha=sigma)  # !! gradient-edit-before-unscale
        model = nn.Linear(8, 8).cuda(); opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            add_noise(model.parameters(), 0.01)
            scaler.step(opt)
            scaler.update()
    """,
    "detach per-step item": """
        import torch
        from torch import nn
        model = nn.Linear(8, 8).cuda(); opt = torch.optim.SGD(model.parameters(), lr=.1)
        scaler = torch.amp.GradScaler("cuda")
        scales = []
        for x, y in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            scale = scaler.get_scale()
            scales.append(scale)  # !! loss-scale-read-every-step
    """,
    "autocast decorator on forward + backward fine": """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(8, 8)
            @torch.autocast("cuda", dtype=torch.float16)
            def forward(self, x):
                return self.l(x)
        net = Net().cuda(); opt = torch.optim.AdamW(net.parameters()); scaler = torch.amp.GradScaler("cuda")
        for x in data:
            opt.zero_grad()
            loss = net(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(opt); scaler.update()
    """,
    "ExitStack / manual enter": """
        import torch, contextlib
        from torch import nn
        net = nn.Linear(8, 8).cuda(); opt = torch.optim.AdamW(net.parameters())
        for x in data:
            opt.zero_grad()
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.autocast("cuda", dtype=torch.float16))
                loss = net(x).float().square().mean()
            loss.backward()  # !! fp16-without-gradscaler
            opt.step()
    """,
    "contextmanager": """
        import torch, contextlib
        from torch import nn
        @contextlib.contextmanager
        def amp(enabled=True):
            with torch.autocast("cuda", dtype=torch.float16, enabled=enabled):
                yield
        net = nn.Linear(8, 8).cuda(); opt = torch.optim.AdamW(net.parameters())
        for x in data:
            opt.zero_grad()
            with amp():
                loss = net(x).float().square().mean()
                loss.backward()  # !! backward-inside-autocast fp16-without-gradscaler
            opt.step()
    """,
    "partial autocast": """
        import torch
        from functools import partial
        from torch import nn
        amp = partial(torch.autocast, device_type="cuda", dtype=torch.bfloat16)
        net = nn.Linear(8, 8).cuda(); opt = torch.optim.AdamW(net.parameters())
        for x in data:
            opt.zero_grad()
            with amp():
                loss = net(x).float().square().mean()
                loss.backward()  # !! backward-inside-autocast
            opt.step()
    """,
    "dtype fallback supported bf16": """
        import torch
        from torch import nn
        dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        net = nn.Linear(8, 8).cuda(); opt = torch.optim.AdamW(net.parameters())
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
        for x in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=dtype):
                loss = net(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(opt); scaler.update()
    """,
    "adam half fixed eps": """
        import torch
        from torch import nn
        net = nn.Linear(8, 8).cuda().half(); opt = torch.optim.AdamW(net.parameters(), eps=1e-4)
        for x in data:
            opt.zero_grad()
            loss = net(x.half()).float().square().mean()
            loss.backward()
            opt.step()
    """,
    "master copy by hand": """
        import torch, copy
        from torch import nn
        net = nn.Linear(8, 8).cuda()
        half = copy.deepcopy(net).half()
        opt = torch.optim.SGD(net.parameters(), lr=.1)
        for x in data:
            loss = half(x.half()).float().square().mean() * 128.0
            loss.backward()
            for m, h in zip(net.parameters(), half.parameters()):
                m.grad = h.grad.float() / 128.0
                h.grad = None
            opt.step()
            with torch.no_grad():
                for m, h in zip(net.parameters(), half.parameters()):
                    h.copy_(m)
    """,
}


@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS)
def test_program(source):
    check(source)

"""Scalers, checkpoints, schedules, regions, weights and speed: each rule in several styles."""

import pytest
from lint_sources import check

LOOP = """
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
"""

FAULTY = {
    "fp16 without scaler, default dtype": """
        import torch

        model = torch.nn.Linear(8, 8).cuda()
        opt = torch.optim.AdamW(model.parameters())
        for x in data:
            with torch.autocast("cuda"):
                loss = model(x).float().pow(2).mean()
            opt.zero_grad()
            loss.backward()  # !! fp16-without-gradscaler
            opt.step()
    """,
    "fp16 without scaler, in a class": """
        import torch

        class Trainer:
            def __init__(self, model):
                self.model = model
                self.dtype = torch.half
                self.opt = torch.optim.AdamW(model.parameters())

            def compute(self, x):
                with torch.amp.autocast(device_type="cuda", dtype=self.dtype):
                    return self.model(x)

            def train(self, loader):
                for x in loader:
                    loss = self.compute(x)
                    loss.backward()  # !! fp16-without-gradscaler
                    self.opt.step()
                    self.opt.zero_grad()
    """,
    "fp16 without scaler, decorated forward": """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)

            @torch.autocast("cuda", dtype=torch.float16)
            def forward(self, x):
                return self.fc(x)

        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in data:
            loss = nn.functional.mse_loss(net(x).float(), y)
            loss.backward()  # !! fp16-without-gradscaler
            opt.step()
            opt.zero_grad()
    """,
    "a scaler that is off": """
        import torch

        model = torch.nn.Linear(8, 8).cuda()
        opt = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda", enabled=False)
        for x in data:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x).float().pow(2).mean()
            opt.zero_grad()
            scaler.scale(loss).backward()  # !! fp16-without-gradscaler
            scaler.step(opt)
            scaler.update()
    """,
    "scaler with bf16 from a dict": """
        import torch

        CONFIG = {"dtype": "bf16", "lr": 1e-3}
        DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

        def train(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")  # !! gradscaler-not-needed-for-bf16
            for x in loader:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=DTYPES[CONFIG["dtype"]]):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
    """,
    "LBFGS": """
        import torch

        model = torch.nn.Linear(8, 8).cuda()
        opt = torch.optim.LBFGS(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for x in data:
            def closure():
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x).float().mean()
                scaler.scale(loss).backward()
                return loss

            scaler.step(opt, closure)  # !! closure-with-gradscaler
            scaler.update()
    """,
    "closure that scales": """
        import torch

        def fit(model, data):
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cuda")
            for x in data:
                def closure():
                    opt.zero_grad()
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = model(x)
                    scaler.scale(loss).backward()
                    return loss

                opt.step(closure)  # !! closure-with-gradscaler
                scaler.update()
    """,
    "scheduler every iteration": """
        import torch

        def train(model, opt, loader):
            sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=1000)
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
                sched.step()  # !! scheduler-after-skipped-step
    """,
    "scaler per epoch": """
        import torch

        model = torch.nn.Linear(8, 8).cuda()
        opt = torch.optim.AdamW(model.parameters())

        def train_one_epoch(model, opt):
            scaler = torch.amp.GradScaler("cuda")  # !! gradscaler-recreated
            for x in data:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x).float().mean()
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()

        for epoch in range(10):
            train_one_epoch(model, opt)
    """,
    "anomaly mode as context": """
        import torch

        def train(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                opt.zero_grad()
                with torch.autograd.detect_anomaly():  # !! anomaly-mode-with-gradscaler
                    with torch.autocast("cuda", dtype=torch.float16):
                        loss = model(x)
                    scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
    """,
    "checkpoint in a method": """
        import torch

        class Trainer:
            def __init__(self, model, path):
                self.model = model
                self.path = path
                self.opt = torch.optim.AdamW(self.model.parameters())
                self.scaler = torch.amp.GradScaler("cuda")

            def fit(self, loader, epochs):
                for epoch in range(epochs):
                    for x in loader:
                        self.opt.zero_grad()
                        with torch.autocast("cuda", dtype=torch.float16):
                            loss = self.model(x)
                        self.scaler.scale(loss).backward()
                        self.scaler.step(self.opt)
                        self.scaler.update()
                    self.save(epoch)

            def save(self, epoch):
                state = {"epoch": epoch}
                state["model"] = self.model.state_dict()
                state["optimizer"] = self.opt.state_dict()
                torch.save(state, self.path)  # !! checkpoint-missing-scaler-state
    """,
    "saved, not restored": """
        import torch

        def train(model, opt, loader, path):
            scaler = torch.amp.GradScaler("cuda")
            state = torch.load(path)  # !! scaler-state-not-restored
            model.load_state_dict(state["model"])
            opt.load_state_dict(state["opt"])
            for x in loader:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "scaler": scaler.state_dict()}, path)
    """,
    "backward under a kept context": """
        import torch

        ctx = torch.autocast("cuda", dtype=torch.bfloat16)

        def train(model, opt, loader):
            for x in loader:
                opt.zero_grad()
                with ctx:
                    loss = model(x)
                    loss.backward()  # !! backward-inside-autocast
                opt.step()
    """,
    "backward in a helper called inside": """
        import torch

        def finish(loss, scaler):
            scaler.scale(loss).backward()  # !! backward-inside-autocast

        def train(model, opt, loader):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                    finish(loss, scaler)
                scaler.step(opt)
                scaler.update()
    """,
    "decorated training step": """
        import torch

        class T:
            def __init__(self, model):
                self.model = model
                self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

            @torch.autocast("cuda", dtype=torch.bfloat16)
            def step(self, x):
                self.opt.zero_grad()
                loss = self.model(x)
                loss.backward()  # !! backward-inside-autocast
                self.opt.step()
    """,
    "decorated training loop": """
        import torch

        @torch.autocast("cuda", dtype=torch.bfloat16)  # !! autocast-spans-optimizer-step
        def fit(model, opt, loader):
            for x in loader:
                opt.zero_grad()
                loss = model(x)
                loss.backward()
                opt.step()
    """,
    "block around an epoch function": """
        import torch

        def epoch(model, opt, scaler, loader):
            for x in loader:
                opt.zero_grad()
                loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()

        model = torch.nn.Linear(8, 8)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.float16):  # !! autocast-spans-optimizer-step
            for _ in range(10):
                epoch(model, opt, scaler, data)
    """,
    "disabled region in forward": """
        import torch
        from torch import nn

        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.proj = nn.Linear(8, 8)
                self.out = nn.Linear(8, 2)

            def forward(self, x):
                h = self.proj(x)
                with torch.amp.autocast("cuda", enabled=False):
                    return self.out(h)  # !! autocast-disabled-without-upcast

        head = Head()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = head(x)
    """,
    "BCE functional": """
        import torch
        import torch.nn.functional as F

        def loss_of(model, x, y):
            with torch.autocast("cuda", dtype=torch.float16):
                p = torch.sigmoid(model(x))
                return F.binary_cross_entropy(p, y)  # !! binary-cross-entropy-under-autocast
    """,
    "BCE in an attribute": """
        import torch
        from torch import nn

        class T:
            def __init__(self, model):
                self.model = model
                self.criterion = nn.BCELoss()

            def loss(self, x, y):
                with torch.autocast(device_type="cuda"):
                    return self.criterion(self.model(x).sigmoid(), y)  # !! binary-cross-entropy-under-autocast
    """,
    "custom function by alias": """
        import torch
        from torch.autograd import Function

        class MatMul(Function):  # !! custom-function-without-custom-fwd
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return torch.mm(a, b)

            @staticmethod
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                return g.mm(b.t()), a.t().mm(g)

        class Layer(torch.nn.Module):
            def __init__(self, d):
                super().__init__()
                self.w = torch.nn.Parameter(torch.randn(d, d))

            def forward(self, x):
                return MatMul.apply(x, self.w)

        layer = Layer(8)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = layer(x).float().mean()
    """,
    "executor": """
        import torch
        from concurrent.futures import ThreadPoolExecutor

        model = torch.nn.Linear(8, 8)

        def work(x):
            return model(x)

        with ThreadPoolExecutor() as pool, torch.autocast("cuda", dtype=torch.float16):
            future = pool.submit(work, x)  # !! autocast-not-in-thread
    """,
    "half model, trained by scaler in a class": """
        import torch
        from torch import nn

        class T:
            def __init__(self):
                self.model = nn.Linear(8, 8)
                self.model.to(torch.float16)  # !! half-weights-with-gradscaler
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
                self.scaler = torch.amp.GradScaler("cuda")

            def step(self, x):
                self.opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = self.model(x).float().mean()
                self.scaler.scale(loss).backward()
                self.scaler.step(self.opt)
                self.scaler.update()
    """,
    "model loaded in half": """
        import torch
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        half = torch.float16
        model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=half)  # !! half-weights-with-gradscaler
        args = TrainingArguments("out", fp16=True)
        Trainer(model=model, args=args).train()
    """,
    "AdamW on half, eps given": """
        import torch
        from torch import nn

        def build():
            return nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8))

        net = build().half().cuda()
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-10)  # !! adam-eps-on-half-params
        for x in data:
            loss = net(x).float().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "SGD on half": """
        import torch
        from torch import nn

        net = nn.Linear(8, 8)
        net = net.to("cuda", torch.float16)  # !! half-weights-without-master-copy
        opt = torch.optim.SGD(net.parameters(), lr=1e-3)
        for x in data:
            loss = net(x).float().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "roundtrip in a class": """
        import torch

        class T:
            def __init__(self, model):
                self.model = model
                self.opt = torch.optim.AdamW(self.model.parameters())

            def fit(self, loader):
                for epoch in range(3):
                    for x in loader:
                        loss = self.model(x).mean()
                        loss.backward()
                        self.opt.step()
                        self.opt.zero_grad()
                    self.evaluate(loader)

            def evaluate(self, loader):
                self.model.eval()
                self.model.to(torch.bfloat16)  # !! half-roundtrip-on-training-model
                with torch.no_grad():
                    for x in loader:
                        self.model(x.bfloat16())
                self.model.to(torch.float32)
                self.model.train()
    """,
    "ema in half": """
        import copy
        import torch

        class Ema:
            def __init__(self, model):
                self.module = copy.deepcopy(model).half().eval()

            @torch.no_grad()
            def update(self, model, decay=0.999):
                for e, p in zip(self.module.parameters(), model.parameters()):
                    e.mul_(decay).add_(p.half(), alpha=1 - decay)  # !! ema-in-half

        model = torch.nn.Linear(8, 8)
        ema = Ema(model)
        for x in data:
            ema.update(model)
    """,
    "bf16 around DataParallel": """
        import torch
        from torch import nn

        model = nn.DataParallel(nn.Linear(8, 8)).cuda()
        opt = torch.optim.AdamW(model.parameters())
        for x in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).float().mean()  # !! autocast-dtype-lost-in-dataparallel
            loss.backward()
            opt.step()
    """,
    "device object": """
        import torch

        device = torch.device("cuda")
        with torch.autocast(device_type=device, dtype=torch.float16):  # !! autocast-device-mismatch
            y = model(x)
    """,
    "autocast for the other device": """
        import torch

        model = torch.nn.Linear(8, 8).to("cpu")
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in data:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):  # !! autocast-device-mismatch
                loss = model(x).float().mean()
            loss.backward()
            opt.step()
    """,
    "scaler for the other device": """
        import torch

        model = torch.nn.Linear(8, 8)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler()  # !! autocast-device-mismatch
        for x in data:
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(x).float().mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    """,
    "in-place product": """
        import torch

        with torch.autocast("cuda", dtype=torch.float16):
            h = torch.matmul(a, b)
            h.addmm_(c, d)  # !! out-variant-bypasses-autocast
    """,
    "deprecated attribute": """
        import torch

        with torch.cuda.amp.autocast(dtype=torch.bfloat16):  # !! deprecated-amp-api
            y = model(x)
    """,
    "scale logged": """
        import torch

        def train(model, opt, loader, writer):
            scaler = torch.amp.GradScaler("cuda")
            for step, x in enumerate(loader):
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
                writer.add_scalar("scale", scaler.get_scale(), step)  # !! loss-scale-read-every-step
    """,
    "evaluated in float32": """
        import torch

        model = torch.nn.Linear(8, 8)
        opt = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda")

        @torch.no_grad()
        def validate():
            model.eval()
            total = 0.0
            for x, y in held_out:
                total += torch.nn.functional.mse_loss(model(x), y).item()  # !! evaluation-in-another-precision
            return total

        for epoch in range(3):
            model.train()
            for x, y in data:
                opt.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = torch.nn.functional.mse_loss(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
            print(validate())
    """,
}


@pytest.mark.parametrize("source", FAULTY.values(), ids=FAULTY)
def test_faulty_state(source):
    check(source)

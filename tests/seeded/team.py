"""The people, projects, machines and workloads of the made-up team."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from server.accounts import service as accounts
from server.db.tables import User, Worker, Workload

PEOPLE = {"ann": "submitter", "Björk Þórsdóttir": "submitter", "visitor": "viewer"}
COMMITS = tuple(hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest() for number in range(12))

CPU = {"type": "cpu", "name": "AMD EPYC 9R14", "abilities": {"vectors": "AVX512", "avx512_bf16": True}}
A100 = {"type": "cuda", "name": "NVIDIA A100-SXM4-80GB", "capability": "8.0", "memory_bytes": 85_100_000_000}
H200 = {"type": "cuda", "name": "NVIDIA H200", "capability": "9.0", "memory_bytes": 150_100_000_000}
DEVICES: dict[str, dict[str, Any]] = {"cpu": CPU, "a100": A100, "h200": H200}

WORKLOADS: dict[str, dict[str, Any]] = {
    "digits-cnn": {
        "title": "Handwritten digits",
        "summary": "A small convolutional network on scikit-learn's handwritten digits.",
        "steps": 1000,
        "recipes": ["32-true", "bf16-mixed", "16-mixed"],
        "primary": {"name": "accuracy", "higher_is_better": True, "margin": 0.005, "relative": False, "unit": ""},
        "parameters": [{"name": "lr", "type": "float", "default": 0.001, "min": 1e-6, "max": 1.0, "help": "step size"}],
    },
    "stdlib-gpt": {
        "title": "Python source GPT",
        "summary": "A small byte-level GPT on the source text of Python's standard library.",
        "steps": 1000,
        "recipes": ["32-true", "bf16-mixed", "16-mixed"],
        "primary": {"name": "loss", "higher_is_better": False, "margin": 0.01, "relative": True, "unit": ""},
        "parameters": [
            {"name": "layers", "type": "int", "default": 4, "min": 1, "max": 24, "help": "blocks"},
            {"name": "width", "type": "int", "default": 256, "min": 16, "max": 16384, "help": "hidden units"},
        ],
    },
    "photo-denoiser": {
        "title": "Photo denoiser",
        "summary": "Removes noise from photographs taken at a tenth of the light.",
        "steps": 1000,
        "recipes": ["32-true", "bf16-mixed", "16-mixed", {"precision": "16-mixed", "scaler": "none"}],
        "primary": {"name": "psnr", "higher_is_better": True, "margin": 0.25, "relative": False, "unit": "dB"},
        "parameters": [
            {"name": "noise", "type": "float", "default": 0.15, "min": 0.0, "max": 1.0, "help": "sd of the noise"},
            {"name": "activation", "type": "str", "default": "gelu", "choices": ["gelu", "relu"], "help": ""},
        ],
    },
}
BROKEN = "SyntaxError: expected ':' (my_transformer.py, line 12)\n    def model(self) -> nn.Module"


def environment(device: str, number: int) -> dict[str, Any]:
    """What a run on that device said of its surroundings; ``number`` chooses commit and versions."""
    cuda = {"cuda": "12.8", "driver": f"5{60 + number}.35.03"} if device != "cpu" else {}
    return {
        "torch": "2.13.0" if number >= 6 else "2.12.1",
        "python": "3.11.9",
        "platform": "Linux-6.8.0-x86_64-with-glibc2.39",
        "device": DEVICES[device] | cuda,
        "num_threads": 16,
        "git_commit": COMMITS[number] + ("+changes" if number % 5 == 3 else ""),
        "flags": {"tf32": False, "deterministic_algorithms": True},
        "packages": {"numpy": f"2.{number // 3}.0", "torchvision": "0.26.0"},
    }


def add_people(session: Session) -> dict[str, User]:
    """The first admin and the others, by name."""
    people = {accounts.FIRST_ADMIN: accounts.find_user(session, accounts.FIRST_ADMIN)}
    for name, role in PEOPLE.items():
        people[name] = accounts.create_user(session, "Bjork" if not name.isascii() else name, role)
        people[name].name = name  # older accounts may have any name
    session.flush()
    return people


def add_workloads(session: Session, now: datetime) -> None:
    """Current versions, and one broken file."""
    for name, description in WORKLOADS.items():
        session.add(_workload(name, now, description, None))
    session.add(_workload("my-transformer", now, {}, BROKEN))


def _workload(name: str, now: datetime, description: dict[str, Any], error: str | None) -> Workload:
    return Workload(
        name=name,
        source_hash=hashlib.sha256(name.encode()).hexdigest(),
        path=f"/srv/workloads/{name.replace('-', '_')}.py",
        description=description,
        error=error,
        first_seen_at=now - timedelta(days=200),
        seen_at=now,
    )


def add_workers(session: Session, now: datetime) -> dict[str, Worker]:
    """One worker per kind of device and one that is long gone, by device."""
    made = {}
    for device, host, state, alive in (
        ("a100", "gpu-rack-07.lab", "online", True),
        ("h200", "gpu-rack-12.lab", "draining", True),
        ("cpu", "cpu-04.lab", "online", True),
        ("gone", "an-old-workstation-under-somebodys-desk-with-a-long-name.lab.example", "offline", False),
    ):
        facts = DEVICES.get(device, CPU)
        made[device] = Worker(
            name=f"{host}@worker", host=host, pid=4242, version="0.1.0", slots=1,
            devices=[{"kind": facts["type"], "name": facts["name"]}], state=state,
            started_at=now - timedelta(hours=30),
            heartbeat_at=now + timedelta(days=30) if alive else now - timedelta(days=40),
        )  # fmt: skip
    session.add_all(made.values())
    session.flush()
    return made

"""Workloads for the tests of child processes: one that behaves, and others that do not."""

import ctypes
import os
import subprocess
import sys
import time

import torch
from torch import nn

from amp_core import Workload


class Tiny(Workload):
    """A linear regression with dropout."""

    width: int = 8

    def model(self):
        return nn.Sequential(nn.Linear(self.width, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def batches(self, split, seed):
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(4):
            x = torch.randn(32, self.width, generator=generator)
            yield x, x.sum(dim=1, keepdim=True)


class Misbehaving(Tiny):
    """Does something bad at its fifth training batch."""

    def model(self):
        self.num_losses = 0
        return super().model()

    def loss(self, model, batch):
        self.num_losses += 1
        if self.num_losses == 5:
            self.misbehave()
        return super().loss(model, batch)

    def misbehave(self):
        """Nothing yet."""


class Raises(Misbehaving):
    def misbehave(self):
        raise ValueError("the fifth batch is bad")


class Exits(Misbehaving):
    def misbehave(self):
        sys.exit(3)


class ExitsAtOnce(Misbehaving):
    def misbehave(self):
        os._exit(7)


class Segfaults(Misbehaving):
    def misbehave(self):
        ctypes.string_at(0)


class LoopsForever(Misbehaving):
    def misbehave(self):
        print("looping", flush=True)
        while True:
            pass


class HoldsTheInterpreter(Misbehaving):
    """Waits in native code without giving other threads a turn."""

    def misbehave(self):
        print("holding", flush=True)
        ctypes.PyDLL(None).sleep(1000)


class OutOfMemory(Misbehaving):
    def misbehave(self):
        torch.empty(1 << 60)


class Slow(Tiny):
    def loss(self, model, batch):
        time.sleep(0.02)
        return super().loss(model, batch)


class HasGrandchild(Misbehaving):
    """Leaves behind a process that holds stdout open, and prints its process id."""

    def misbehave(self):
        print(f"grandchild {subprocess.Popen(['sleep', '1000']).pid}", flush=True)


class Talks(Tiny):
    """Prints its environment and what it finds on stdin."""

    def model(self):
        for name in sorted(os.environ):
            print(f"{name}={os.environ[name]}")
        print("stdin:", repr(sys.stdin.read()))
        print("cwd:", os.getcwd())  # noqa: PTH109
        sys.stderr.write("odd bytes: \udcff\n")
        return super().model()

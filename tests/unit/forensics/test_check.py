"""`amp_core.check` and ``ampboard check``: the same answer from a notebook and from a gate of CI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import amp_core
from amp_core.check_command import VERDICT_CODES
from server.cli.verdict_code import EXIT_CODES

OVERFLOWING = '''
import torch
from torch import nn
from amp_core import Workload


class Squares(nn.Module):
    def forward(self, x):
        return x * x


class Overflowing(Workload):
    """Squares beyond fp16."""

    steps = 4

    def model(self):
        model = nn.Sequential(nn.Linear(4, 8), Squares(), nn.Linear(8, 2))
        with torch.no_grad():
            model[0].weight.mul_(2000.0)
        return model

    def batches(self, split, seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(4):
            x = torch.randn(16, 4, generator=generator)
            yield x, (x[:, 0] > 0).long()
'''


def test_check_from_a_notebook_leaves_the_model_alone_and_reads_as_markdown() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    before = model.weight.detach().clone()
    batches = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(4)]
    found = amp_core.check(model, batches, lambda m, b: functional.cross_entropy(m(b[0]), b[1]), "bf16-mixed")
    assert found.sound
    assert found.diagnoses == {"bf16-mixed": None}
    assert "Nothing found" in str(found)
    shown = found._repr_html_()
    assert "4 steps" in shown
    assert "<h4>bf16-mixed</h4>" in shown
    assert found._repr_markdown_() == str(found)
    assert found.speed is not None
    assert not found.speed.expects_gain  # 8 by 4 by 2
    assert torch.equal(model.weight, before)


def test_the_command_finds_the_fault_and_says_so_by_its_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "overflowing.py"
    path.write_text(OVERFLOWING)
    command = [
        sys.executable,
        "-m",
        "amp_core",
        "check",
        str(path),
        "--recipe",
        "fp16",
        "--steps",
        "4",
        "--seeds",
        "2",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (result,) = json.loads(done.stdout).values()
    diagnosis = result["diagnoses"]["16-mixed"]
    (judged,) = result["comparison"]["recipes"]
    assert (judged["recipe"], judged["verdict"]) == ("16-mixed", "UNSAFE")
    assert (diagnosis["module"], diagnosis["kind"], diagnosis["verified"]) == ("1", "overflow", True)
    assert diagnosis["recipe"]["precision"] == "bf16-mixed"  # in FP32 module 1 only hands the overflow to the next cast


def test_a_broken_file_cannot_be_checked(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nothing_of_that_name")
    command = [sys.executable, "-m", "amp_core", "check", str(path), "--recipe", "bf16"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 2


SOUND_WORKLOAD = OVERFLOWING.replace("return x * x", "return torch.relu(x)").replace("mul_(2000.0)", "mul_(1.0)")


def test_a_sound_workload_gets_its_verdict_and_exits_with_it_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "sound.py"
    path.write_text(SOUND_WORKLOAD)
    command = [sys.executable, "-m", "amp_core", "check", str(path), "--recipe", "bf16", "--steps", "4", "--seeds", "2"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Nothing found" in told.stdout
    assert "2 seeds" in told.stdout
    coded = subprocess.run([*command, "--exit-code", "--json"], capture_output=True, text=True, check=False)
    (result,) = json.loads(coded.stdout).values()
    (judged,) = result["comparison"]["recipes"]
    assert coded.returncode == VERDICT_CODES[judged["verdict"]]
    assert VERDICT_CODES == EXIT_CODES  # one meaning of a code, whoever gives it


LOOP = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("in the loop")
with torch.autocast("cpu", torch.bfloat16):
    for _ in range(3):
        loss = model(torch.ones(8, 4)).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_file_with_a_loop_of_its_own_runs_under_watch(tmp_path: Path) -> None:
    path = tmp_path / "loop.py"
    path.write_text(LOOP)
    command = [sys.executable, "-m", "amp_core", "check", str(path), "--recipe", "bf16", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert [finding["kind"] for finding in told["loop"]] == ["api-misuse"]
    assert told["lint"]
    path.write_text("raise ValueError('mine')")
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "mine" in failed.stderr

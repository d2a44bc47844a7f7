"""The rule table as text: docs/lint.md, and one rule for the terminal."""

from __future__ import annotations

import sys
from textwrap import fill

from amp_core.lint.catalogue import RULES
from amp_core.lint.rule import Rule

PRELUDE = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import GradScaler, autocast

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
optimizer_d = torch.optim.Adam(discriminator.parameters())
optimizer_g = torch.optim.Adam(generator.parameters())
loss_fn = nn.CrossEntropyLoss()
"""

HEAD = """\
# The AMP linter

Generated from the rule table in `amp_core/lint/rules/` by `make docs`.

    ampboard lint train.py src/          # text; --format json or sarif for programs
    ampboard lint --select AMP1,AMP2 .   # some rules; --ignore leaves some out
    ampboard lint --explain AMP101       # one rule, in the terminal

The linter follows values through a file without running it: aliases, attributes, calls of functions and methods of the
file, branches, loops and with-blocks. It speaks only when it is sure: a dtype or a flag that the file does not show
gives no finding.

| exit code | meaning |
|---|---|
| 0 | nothing at or above `--fail-on` (default: warning) |
| 1 | findings at or above it |
| 2 | a wrong command line, or a file that cannot be read or is not Python |

**Silencing.** `# amp: ignore[AMP101]` on the line (or alone on the line before) silences a rule there, by code or name;
`# amp: ignore` silences all; `# amp: ignore-file[AMP511]` counts for the file.

**pre-commit.** Add to `.pre-commit-config.yaml`, with the address and revision that you install from:

    - repo: <address of ampboard>
      rev: <revision>
      hooks:
        - id: ampboard-lint

**Severity.** *error*: wrong results or an exception. *warning*: probably wrong, or wrong sooner or later. *info*: costs
speed, comparability or future compatibility; does not fail a build by default.

In the examples, `model`, `optimizer`, `loss_fn` and `loader` are what they are called; a scaler is a
`torch.amp.GradScaler("cuda")`.

"""


def markdown() -> str:
    """docs/lint.md."""
    rows = ["| code | name | severity | what |", "|---|---|---|---|"]
    rows += [f"| [{r.code}](#{anchor(r)}) | {r.name} | {r.severity.label} | {r.what} |" for r in RULES.values()]
    return HEAD + "\n".join(rows) + "\n" + "".join(_section(rule) for rule in RULES.values())


def anchor(rule: Rule) -> str:
    """The fragment of a rule's heading."""
    return f"{rule.code}-{rule.name}".lower()


def _section(rule: Rule) -> str:
    return (
        f"\n## {rule.code} {rule.name}\n\n*{rule.severity.label}.* {rule.what}\n\n{rule.why}\n\n"
        f"```python\n# wrong\n{rule.before}\n\n# right\n{rule.after}\n```\n\n**Fix:** {rule.fix}.\n"
    )


def explain(rule: Rule) -> str:
    """One rule for a terminal."""
    before, after = (
        "\n".join(f"    {line}".rstrip() for line in text.splitlines()) for text in (rule.before, rule.after)
    )
    return (
        f"{rule.code} {rule.name} ({rule.severity.label})\n\n{fill(rule.what, 100)}\n\n{fill(rule.why, 100)}\n\n"
        f"Wrong:\n\n{before}\n\nRight:\n\n{after}\n\nFix: {rule.fix}.\n"
    )


if __name__ == "__main__":
    sys.stdout.write(markdown())

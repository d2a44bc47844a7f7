"""Write requirements.lock and requirements-dev.lock from what is installed beside this interpreter.

Exact versions of the closure of the project's dependencies, without hashes, index addresses or local version labels,
so that the same file installs the CPU build of torch where that is at hand and the CUDA build elsewhere (torch pins
the CUDA packages it needs itself; they are left out here). Run it by `make lock` after changing pyproject.toml.
"""

import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
ACCELERATOR_PREFIXES = ("nvidia-", "cuda-", "triton")


def closure(requirements: list[str]) -> dict[str, str]:
    """Installed version of every distribution that ``requirements`` need here, by canonical name."""
    found: dict[str, str] = {}
    pending = [Requirement(text) for text in requirements]
    seen: set[tuple[str, str]] = set()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        if name.startswith(ACCELERATOR_PREFIXES):
            continue
        installed = distribution(name)
        found[name] = Version(installed.version).public
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in installed.requires or []:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    pending.append(needed)
    return found


def write(path: Path, found: dict[str, str], purpose: str) -> None:
    head = f"# {purpose}. Written by `make lock`; do not edit.\n"
    path.write_text(head + "".join(f"{name}=={version}\n" for name, version in sorted(found.items())))
    sys.stdout.write(f"{path.name}: {len(found)} packages\n")


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = closure(project["dependencies"])
    development = closure(project["dependencies"] + project["optional-dependencies"]["dev"])
    write(ROOT / "requirements.lock", runtime, "What ampboard needs to run")
    write(ROOT / "requirements-dev.lock", development, "What ampboard needs to run, to be checked and to be tested")


if __name__ == "__main__":
    main()

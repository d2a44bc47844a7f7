"""`make cases`: every case of a folder through the product, and a table of what is right."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import msgspec
import torch

from amp_core.forensics.loop_watch import watch_script
from amp_core.lint import lint_source
from tests.cases.case_file import load
from tests.cases.linting import lint_script
from tests.cases.scoring import COLUMNS, Scored, policies_of, run_case

MARKS = {True: "right", False: "WRONG", None: "-"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make cases", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("../shared/cases"))
    parser.add_argument("--json", type=Path, help="write everything that was found")
    parser.add_argument("--only", default="", help="only files whose name begins so")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not given.folder.is_dir():
        print(f"{given.folder} is no folder: name one with case files, make cases CASES=DIR", file=sys.stderr)
        return 2
    sys.path.insert(0, str(given.folder))
    report: dict[str, list[Any]] = {"cases": [], "special": [], "lint": []}
    is_lint_folder = given.folder.resolve().name == "lint"
    paths = [] if is_lint_folder else _chosen(given.folder, given.only)
    scripts = _chosen(given.folder if is_lint_folder else given.folder / "lint", given.only)
    good = _run_cases(paths, report)
    good = _run_lint(scripts, report) and good
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=1, default=str) + "\n")
    return 0 if good else 1


def _chosen(folder: Path, begins: str) -> list[Path]:
    return [path for path in sorted(folder.glob("[!_]*.py")) if path.stem.startswith(begins)]


def _run_cases(paths: list[Path], report: dict[str, list[Any]]) -> bool:
    if not paths:
        return True
    print(f"{'case':34} {'lists':7} " + " ".join(f"{name:8}" for name in COLUMNS) + " found")
    right = total = 0
    for path in paths:
        case = load(path)
        if getattr(case, "SPECIAL", False):
            total += 1
            report["special"].append(_special(path, case.EXPECT))
            right += report["special"][-1]["all_right"]
            continue
        for policy in policies_of(case):
            total += 1
            try:
                scored = run_case(path, policy)
            except Exception:  # noqa: BLE001 - one case must not end the others; it counts as wrong
                print(f"{path.stem:34} {policy:7} WRONG    forensics itself failed:")
                traceback.print_exc(file=sys.stdout)
                report["cases"].append({"case": path.stem, "policy": policy, "crash": traceback.format_exc()})
                continue
            _print(scored)
            report["cases"].append(scored.to_json())
            right += scored.all_right
    print(f"{right} of {total} all right\n")
    return right == total


def _print(scored: Scored) -> None:
    marks = " ".join(f"{MARKS[scored.right[name]]:8}" for name in COLUMNS)
    found = scored.diagnosis
    text = "nothing" if found is None else f"{found.kind} in {found.module or '(root)'}: {found.op} ({found.phase})"
    print(f"{scored.case:34} {scored.policy:7} {marks} {text}  [{scored.seconds:.0f} s]", flush=True)


def _special(path: Path, answer: dict[str, Any]) -> dict[str, Any]:
    """A case with a loop of its own: it runs as a script under watch, and its source is linted."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
        watched, error = watch_script(path)
    findings = lint_source(path.read_text(), path.name)
    listed = [{"code": f.code, "name": f.name, "line": f.line, "message": f.message} for f in findings]
    kinds = [finding.kind for finding in watched]
    right = answer["kind"] in kinds[:1]
    said = ", ".join([f"{f.kind}: {f.symptom}" for f in watched] + [f"{f.name} (line {f.line})" for f in findings])
    print(f"{path.stem:34} own     {MARKS[right]:8} kind {answer['kind']}: found {said or 'nothing'}", flush=True)
    return {
        "case": path.stem,
        "expected": answer["symptom"],
        "found": [msgspec.to_builtins(finding) for finding in watched],
        "error": error,
        "lint": listed,
        "right": {"kind": right},
        "all_right": right,
    }


def _run_lint(paths: list[Path], report: dict[str, list[Any]]) -> bool:
    if not paths:
        return True
    right = 0
    for path in paths:
        linted = lint_script(path)
        right += linted.all_right
        report["lint"].append(linted.to_json())
        found = ", ".join(f"{f.name}:{f.line}" for f in linted.findings) or "nothing"
        print(f"{path.stem:42} {MARKS[linted.all_right]:6} wanted {linted.lines or 'nothing'}, found {found}")
    print(f"{right} of {len(paths)} scripts all right")
    return right == len(paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

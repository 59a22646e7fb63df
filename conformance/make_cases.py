"""Writes all cases into this folder, or checks them: ``python conformance/make_cases.py [--check]``.

It imports nothing of dpassay. Whatever is random in a case follows from its name, so every run writes the same bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import accepted_certificates  # noqa: E402
import certificate_cases  # noqa: E402
import epsilon_cases  # noqa: E402
import rejected_certificates  # noqa: E402

FOLDERS = ("certificate", "epsilon")
CASE = "case.json"


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _write_certificate_case(folder: Path, name: str, case: certificate_cases.Case, expected: str) -> None:
    for path, content in case.files.items():
        target = folder / "release" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.symlink_to(content.target)
    about: dict[str, Any] = {"about": case.about, "expected": expected, "made": case.made}
    if case.at_fault:
        about["at_fault"] = case.at_fault
    if case.key:
        about["key"] = case.key
    if case.ledger is not None:
        about["ledger"] = "ledger.jsonl"
        (folder / "ledger.jsonl").write_bytes(case.ledger)
    if expected == "reject" and name in rejected_certificates.OUTSIDE:
        (folder / "outside").write_bytes(rejected_certificates.OUTSIDE[name])
    (folder / CASE).write_text(_text(about), encoding="utf-8")


def _write_epsilon_case(folder: Path, case: epsilon_cases.Case, expected: str) -> None:
    folder.mkdir(parents=True)
    (folder / case.input).write_text(case.content, encoding="utf-8")
    (folder / CASE).write_text(_text({**case.described(), "expected": expected}), encoding="utf-8")


def write(folder: Path) -> None:
    """Writes all cases into an empty folder."""
    certificates = {"accept": accepted_certificates.accepted_cases(), "reject": rejected_certificates.rejected_cases()}
    for expected, cases in certificates.items():
        for name, case in cases.items():
            _write_certificate_case(folder / "certificate" / expected / name, name, case, expected)
    events = {"accept": epsilon_cases.accepted_cases(), "reject": epsilon_cases.rejected_cases()}
    for expected, of_events in events.items():
        for name, of_event in of_events.items():
            _write_epsilon_case(folder / "epsilon" / expected / name, of_event, expected)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and link of the cases in a folder: its path, and its content or target."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        for name in FOLDERS
        for path in sorted((folder / name).rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def differences(folder: Path) -> list[str]:
    """The paths at which the cases in this folder differ from those newly written into an empty one."""
    write(folder)
    kept, new = contents(HERE), contents(folder)
    return sorted(path for path in kept.keys() | new.keys() if kept.get(path) != new.get(path))


def main() -> int:
    """Runs the command; its exit code."""
    parser = argparse.ArgumentParser(description="Writes all cases, or checks that they are as written.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    if parser.parse_args().check:
        with tempfile.TemporaryDirectory() as folder:
            different = differences(Path(folder))
        print("\n".join(different) or "all cases are as written")
        return 1 if different else 0
    for name in FOLDERS:
        shutil.rmtree(HERE / name, ignore_errors=True)
    write(HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Known faults, put into the code one by one; for each, tests are named that must fail: ``python tests/mutants.py``.

A fault here draws less noise than is charged, charges less than was drawn, or understates a bound. The faults run in a
copy of the checkout, which is imported in place of the installed package. The named tests must pass in the copy before
it is changed, and with the fault a test must fail by an assertion: a crash or a failed import is no proof.

``python tests/mutants.py NAME…`` runs some of them, ``--list`` prints the names.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 300  # of one run of the tests of a mutant, after which it counts as survived


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        name: to run it alone.
        file: that it changes, from the root of the checkout.
        old: text that occurs exactly once in the file.
        new: what replaces it.
        tests: files or single tests, none of them slow, of which at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


DESCENT = "tests/mechanisms/two_stage/test_descent.py"

MECHANISMS = (
    Mutant(
        "fine-tuning: the grid is made for noise × .9",
        "mechanisms/two_stage/descent.py",
        "scale = Fraction(noise_multiplier) * sum_sensitivity(adjacency)",
        "scale = Fraction(9, 10) * Fraction(noise_multiplier) * sum_sensitivity(adjacency)",
        (f"{DESCENT}::test_the_noise_is_at_least_what_the_event_says",),
    ),
)
"""What generators draw, and what they charge."""

ACCOUNTANTS: tuple[Mutant, ...] = ()
"""What accountants answer."""

MUTANTS = MECHANISMS + ACCOUNTANTS

_FINDER = '''
"""Imports the packages of this checkout in place of the installed ones."""
import sys
import tomllib
from importlib.util import spec_from_file_location
from pathlib import Path

ROOT = Path({root!r})
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in FOLDERS:
            return None
        folder = ROOT / FOLDERS[name]
        first = folder / "__init__.py"
        if not first.is_file():  # a folder of data alone
            return None
        return spec_from_file_location(name, first, submodule_search_locations=[str(folder)])


sys.meta_path.insert(0, Finder)
'''
_ASSERTED = re.compile(r"^E +(AssertionError|assert |Failed: DID NOT|.*Falsifying example)", re.MULTILINE)


class Copy:
    """A copy of what git knows or would add, with a module that makes Python import it.

    Args:
        folder: empty.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self._first = folder / "first"
        self._first.mkdir()
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        for name in sorted(set(listed.decode().split("\0")) - {""}):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        (self._first / "sitecustomize.py").write_text(_FINDER.format(root=str(self.root)))

    def pytest(self, tests: Sequence[str], *, keep_bytecode: bool = False) -> tuple[int | None, str]:
        """Runs tests; exit code (None if it ran too long) and output."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        mine |= {"PYTHONPATH": str(self._first), "OMP_NUM_THREADS": "1"}
        mine["PYTHONDONTWRITEBYTECODE"] = "" if keep_bytecode else "1"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
        limit = None if keep_bytecode else SECONDS
        try:
            done = subprocess.run(command, cwd=self.root, env=mine, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr

    def imported(self, module: str) -> Path:
        """The file from which a process imports a module."""
        command = [sys.executable, "-c", f"import {module}; print({module}.__file__)"]
        mine = os.environ | {"PYTHONPATH": str(self._first)}
        return Path(subprocess.run(command, env=mine, capture_output=True, text=True, check=True).stdout.strip())

    def survives(self, mutant: Mutant) -> str:
        """Why a mutant survives the tests that are named for it; empty if it is killed."""
        path = self.root / mutant.file
        clean = path.read_text()
        try:
            path.write_text(mutated(mutant, clean))
            Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
            code, said = self.pytest(mutant.tests)
        finally:
            path.write_text(clean)
        if code is None:
            return f"the tests did not end within {SECONDS} s"
        if code == 0:
            return "all tests passed"
        if code != 1 or not _ASSERTED.search(said):
            return f"no assertion failed, pytest ended with {code}:\n{said[-3000:]}"
        return ""


def mutated(mutant: Mutant, clean: str) -> str:
    """The text of a file with the fault.

    Raises:
        ValueError: if the text that it replaces does not occur exactly once.
    """
    if (count := clean.count(mutant.old)) != 1 or mutant.old == mutant.new:
        raise ValueError(f"{mutant.name}: its text occurs {count} times in {mutant.file}, not once; adapt the mutant")
    return clean.replace(mutant.old, mutant.new)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs mutants; 0 if all were killed."""
    parser = argparse.ArgumentParser(description="Puts known faults into a copy of the code; tests must fail.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run; by default all")
    parser.add_argument("--list", action="store_true", help="print the names")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(mutant.name for mutant in MUTANTS))
        return 0
    if unknown := set(given.names) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"there is no mutant {', '.join(sorted(unknown))}; --list prints the names")
    chosen = [mutant for mutant in MUTANTS if not given.names or mutant.name in given.names]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder).resolve())
        packages = {f"cupel.{mutant.file.partition('/')[0]}" for mutant in chosen} - {"cupel.front"}
        for package in ("cupel", *sorted(packages)):
            if not copy.imported(package).is_relative_to(copy.root):
                print(f"{package} is not imported from the copy")
                return 1
        began = time.monotonic()
        code, said = copy.pytest(sorted({test for mutant in chosen for test in mutant.tests}), keep_bytecode=True)
        if code != 0:
            print(f"the tests do not pass without a fault:\n{said[-5000:]}")
            return 1
        print(f"{said.strip().splitlines()[-1]} without a fault", flush=True)
        alive = 0
        for number, mutant in enumerate(chosen, 1):
            start = time.monotonic()
            why = copy.survives(mutant)
            alive += bool(why)
            verdict = f"SURVIVED, {why}" if why else "killed"
            print(f"[{number}/{len(chosen)}] {mutant.name}: {verdict}, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} mutants killed in {time.monotonic() - began:.0f} s")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())

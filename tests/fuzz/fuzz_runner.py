"""Runs cases in forks of one process that has imported everything, each with limits of time and memory; judges them.

A case passes if it exits 0, 1 or 4 with nothing but progress on standard error, or 2 with one short line there, with no
file changed. Nothing that a terminal would obey may be printed.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import fuzz_mutations
from command import plain
from fuzz_inputs import COMMANDS, Command

SECONDS = 20
"""Of processor time that a case may take."""
WALL_SECONDS = 120
"""That a case may take by the clock: a machine may be busy, but a command that waits for ever is found."""
MEMORY = 4 * 2**30
"""Bytes that a case may use beyond what its process has mapped before."""
LONGEST_LINE = 600

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
_WORKING = 6  # entries of a ledger that has tokens or texts
_BAR = re.compile(r"[━╸╺]{3}|\d+% +[-\d]:[-\d]{2}:[-\d]{2}")
_NOTE = re.compile(r"Warning: |\w+: ε [≤≈] ")  # what is to be read with care, and bounds as they arrive
_PYTHON_WARNING = re.compile(r"\b[A-Z]\w*Warning\b")  # "Warning: …" alone is a line of ours


@dataclass(frozen=True)
class Case:
    """A command line in a folder of its own, in which inputs were changed.

    Attributes:
        number: makes it again.
        command: what was changed.
        changes: how.
        arguments: of the changed command line.
    """

    number: int
    command: Command
    changes: tuple[str, ...]
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        code: exit code, or minus the signal that ended it.
        seconds: of processor time.
        bytes: the most memory that it had, beyond that of the process it was forked from.
        faults: what is wrong; empty if it passes.
        output: the end of what it wrote to standard error.
    """

    code: int
    seconds: float
    bytes: int
    faults: tuple[str, ...]
    output: str


def prepared(number: int, inputs: Path, folder: Path) -> Case:
    """The case of a number: its folder is filled with the inputs of a command, and some of them are changed."""
    rng = _generator(number)
    command = _drawn(rng)
    wanted = list(command.files)
    for name in wanted:
        source = inputs / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    changes, arguments = [], list(command.arguments)
    for _ in range(rng.choice([1, 1, 1, 2])):
        if command.files and rng.random() < 0.7:
            name = command.files[min(int(rng.expovariate(1.2)), len(wanted) - 1)]
            try:
                changes.append(fuzz_mutations.file(rng, folder / name))
            except (ValueError, KeyError, IndexError, RecursionError, TypeError, AttributeError):
                changes.append("none")  # a second change to a file that does not parse after the first
        else:
            change, arguments = fuzz_mutations.arguments(rng, arguments, wanted)
            changes.append(change)
    return Case(number, command, tuple(changes), tuple(arguments))


def command_of(number: int) -> Command:
    """The command of a case; no file is made."""
    return _drawn(_generator(number))


def _generator(number: int) -> random.Random:
    return random.Random(f"dpassay {number}")


def _drawn(rng: random.Random) -> Command:
    return rng.choices(COMMANDS, [command.weight for command in COMMANDS])[0]


def run_case(case: Case, folder: Path, *, patch: Callable[[], None] | None = None) -> Outcome:
    """Runs a prepared case in a fork, and judges it.

    Args:
        case: of `prepared`.
        folder: that was filled for it.
        patch: called in the fork first; puts back an old fault.
    """
    before, devices = _snapshot(folder), _devices()
    outside = folder.with_suffix(".out")
    outside.mkdir()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _in_child(case.arguments, folder, outside, patch)
    killed = ""
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() - started > WALL_SECONDS:
            os.kill(child, signal.SIGKILL)
            killed = f"was still running after {WALL_SECONDS} s"
        time.sleep(0.003)
    code = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    stdout = (outside / "stdout").read_text(encoding="utf-8", errors="surrogateescape")
    stderr = (outside / "stderr").read_text(encoding="utf-8", errors="surrogateescape")
    faults = [killed] if killed else []
    working = not killed and code == -signal.SIGXCPU and _is_working(folder, stderr)
    if not killed and code in (-signal.SIGXCPU, -signal.SIGKILL) and not working:
        faults.append(f"took more than {SECONDS} s")
    after = _snapshot(folder)
    changed = sorted({name for name, _ in after.items() ^ before.items()})
    begun = code == 2 and "the same command resumes from there" in stderr  # a run that was begun is kept
    if code != 2 or begun:  # what a command is made to write: files of its own, and the folder of a run or an audit
        changed = [name for name in changed if name in before and "/" not in name]
    if "no connection" in stderr and "--allow-endpoint" not in case.arguments:
        faults.append("an endpoint was asked that nobody had allowed")
    if _devices() != devices:
        faults.append("a file took the place of a device")
    faults += [] if working else judge(code, stdout, stderr, changed)
    shutil.rmtree(outside, ignore_errors=True)
    peak = max(0, usage.ru_maxrss * 1024 - _OWN_BYTES)
    return Outcome(code, seconds, peak, tuple(faults), stderr[-1500:])


_OWN_BYTES = 0


def _devices() -> list[int]:
    """What the devices are that mutations name; whoever may write to their folder could replace one."""
    return [os.lstat(name).st_mode for name in fuzz_mutations.PATHS if name.startswith("/dev/")]


def _is_working(folder: Path, stderr: str) -> bool:
    """Whether a command that ran out of time was at work that a claim asks for, such as a million tokens: it
    showed progress, or, where it was to be quiet, its folder holds tokens, texts or games."""
    if re.search(r"\d+% +[-\d]:|\"percent\": [1-9]", stderr):
        return True
    kept = [*folder.rglob("private/candidates.jsonl"), *folder.rglob("repetitions.jsonl")]
    if any(file.stat().st_size for file in kept):
        return True
    for ledger in folder.rglob("ledger.sqlite"):
        with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
            (last,) = connection.execute("SELECT count(*) FROM entries").fetchone()
        if last >= _WORKING:
            return True
    return False


def judge(code: int, stdout: str, stderr: str, changed: Iterable[str]) -> list[str]:
    """What is wrong with how a command ended."""
    faults = []
    stderr = plain(stderr)
    lines = stderr.splitlines() if "\x1c" not in stderr else stderr.split("\n")
    if code not in (0, 1, 2, 4):
        faults.append(f"exit code {code}")
    if "Traceback" in stderr or _PYTHON_WARNING.search(stderr):
        faults.append("traceback or warning")
    elif code == 2:
        told = [line for line in lines if not _is_progress(line)]
        if len(told) != 1 or not told[0].startswith("dpassay: "):
            faults.append(f"{len(told)} lines with exit code 2")
        elif len(told[0]) > LONGEST_LINE:
            faults.append(f"a line of {len(told[0])} characters")
        if stdout:
            faults.append("results with exit code 2")
    elif code in (0, 1, 4) and not all(_is_progress(line) for line in lines):
        faults.append("more than progress on standard error")
    if names := sorted(changed):
        faults.append(f"changed with exit code {code}: {', '.join(names[:5])}")
    for name, text in (("stdout", stdout), ("stderr", stderr)):
        if code in (0, 1, 2, 4) and (result := _OBEYED.search(text)):
            faults.append(f"{result.group()!r} on {name}")
    return faults


def _is_progress(line: str) -> bool:
    if not line.strip() or _BAR.search(line) or _NOTE.match(line):
        return True
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and bool({"stage", "note"} & set(row))


def _snapshot(folder: Path) -> dict[str, str]:
    results = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        results[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return results


def _in_child(arguments: tuple[str, ...], folder: Path, outside: Path, patch: Callable[[], None] | None) -> None:
    """Runs the command and never returns."""
    code = 99
    try:
        for name, stream in (("stdout", 1), ("stderr", 2)):
            descriptor = os.open(outside / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            os.dup2(descriptor, stream)
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.setsid()
        os.chdir(folder)
        os.environ["XDG_STATE_HOME"] = str(outside / "state")
        for limit, most in ((resource.RLIMIT_AS, _mapped() + MEMORY), (resource.RLIMIT_CPU, SECONDS)):
            resource.setrlimit(limit, (most, most + (limit == resource.RLIMIT_CPU)))
        if patch is not None:
            patch()
        from dpassay.cli.app import run_command

        code = int(run_command(list(arguments)))
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 98
    except BaseException as error:
        with contextlib.suppress(BaseException):
            print(
                f"Traceback: left the command: {type(error).__name__}: {str(error)[:500]}", file=sys.stderr, flush=True
            )
    finally:
        os._exit(code)


def _mapped() -> int:
    """Bytes of address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@dataclass
class Summary:
    """What many cases showed."""

    cases: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    commands: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    slowest: tuple[float, int] = (0.0, -1)
    largest: tuple[int, int] = (0, -1)
    failed: list[tuple[Case, Outcome]] = field(default_factory=list)

    def add(self, case: Case, outcome: Outcome) -> None:
        """Counts a case."""
        self.cases += 1
        self.codes[outcome.code] += 1
        self.commands[case.command.name][outcome.code] += 1
        self.slowest = max(self.slowest, (outcome.seconds, case.number))
        self.largest = max(self.largest, (outcome.bytes, case.number))
        if outcome.faults:
            self.failed.append((case, outcome))

    def lines(self) -> list[str]:
        """The summary for people."""
        codes = sorted(self.codes)
        out = [f"{'command':<20}{'cases':>8}" + "".join(f"{f'exit {code}':>9}" for code in codes)]
        for name in sorted(self.commands):
            row = self.commands[name]
            out.append(f"{name:<20}{sum(row.values()):>8}" + "".join(f"{row[code] or '':>9}" for code in codes))
        out.append(f"{'all':<20}{self.cases:>8}" + "".join(f"{self.codes[code]:>9}" for code in codes))
        out.append(f"slowest: {self.slowest[0]:.1f} s, case {self.slowest[1]}")
        out.append(f"largest: {self.largest[0] / 2**20:.0f} MiB more than at its start, case {self.largest[1]}")
        stopped = self.codes[-signal.SIGXCPU] - sum(outcome.code == -signal.SIGXCPU for _, outcome in self.failed)
        out.append(f"at work after {SECONDS} s, and stopped: {stopped}")
        out.append(f"cases with a fault: {len(self.failed)}")
        return out


def warm_up() -> None:
    """Imports what is slow once, on one thread, since threads do not survive a fork."""
    import importlib
    import pkgutil

    import torch

    torch.set_num_threads(1)
    import dpassay
    import dpassay.accounting
    import dpassay.mechanisms

    for package in (dpassay, dpassay.accounting, dpassay.mechanisms):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if not module.name.endswith(("pytest_plugin", "__main__", "secret_presidio")):
                importlib.import_module(module.name)
    for name in (
        "pyarrow.parquet",
        "sklearn.cluster",
        "sklearn.linear_model",
        "matplotlib.figure",
        "safetensors.numpy",
    ):
        importlib.import_module(name)


def remember_own_size() -> None:
    """Cases are said to be as large as what they add to the size of this process now."""
    global _OWN_BYTES
    gc.collect()
    gc.freeze()  # so that collections in forks copy no pages
    _OWN_BYTES = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

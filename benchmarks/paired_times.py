"""Times of several ways to do one thing, taken in turns: medians of several rounds."""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

_MIN_SECONDS = 0.05
"""Seconds that one timing takes at least: short work is repeated within it."""


@dataclass
class Times:
    """Seconds of one call, one number a round, and what the call returned."""

    answer: Any
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def wall_ms(self) -> float:
        return 1e3 * statistics.median(self.wall)

    @property
    def cpu_ms(self) -> float:
        return 1e3 * statistics.median(self.cpu)

    def to_json(self) -> dict[str, Any]:
        return {"wall_ms": self.wall_ms, "cpu_ms": self.cpu_ms, "wall": self.wall, "cpu": self.cpu}


def paired(works: Mapping[str, Callable[[], Any]], rounds: int, slow: Sequence[str] = ()) -> dict[str, Times]:
    """Times every work once a round, each round in another order, after a call each that warms up, unless it is slow.

    Whatever else the machine does in a round then slows all of them. The garbage collector runs between timings only.
    """
    results: dict[str, Times] = {}
    repeats = dict.fromkeys(works, 1)
    for name in works:
        if name not in slow:
            start = time.perf_counter()
            results[name] = Times(works[name]())
            repeats[name] = max(1, math.ceil(_MIN_SECONDS / max(time.perf_counter() - start, 1e-6)))
    names = list(works)
    gc.disable()
    try:
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                gc.collect()
                wall, cpu = time.perf_counter(), time.process_time()
                for _ in range(repeats[name]):
                    answer = works[name]()
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                times = results.setdefault(name, Times(answer))
                times.cpu.append(cpu / repeats[name])
                times.wall.append(wall / repeats[name])
    finally:
        gc.enable()
    return {name: results[name] for name in names}


def times_faster(item: Times, other: Times) -> float:
    """How many times the other takes: the median over rounds, in wall or processor time, whichever is less.

    A long work is interrupted more often than a short one when the machine is busy, which its processor time is not.
    """
    ratios = []
    for mine, its in ((item.wall, other.wall), (item.cpu, other.cpu)):
        ratios.append(statistics.median(b / max(a, 1e-9) for a, b in zip(mine, its, strict=True)))
    return min(ratios)


@dataclass(frozen=True)
class Goal:
    """A number that must be at least (or at most) another; None where it could not be measured."""

    what: str
    measured: float | None
    least: float = -math.inf
    most: float = math.inf

    @property
    def met(self) -> bool:
        return self.measured is not None and self.least <= self.measured <= self.most

    def __str__(self) -> str:
        sign, bound = ("≥", self.least) if math.isfinite(self.least) else ("≤", self.most)
        result = "not measured" if self.measured is None else f"{self.measured:.4g}"
        return f"{'met   ' if self.met else 'MISSED'}  {self.what}: {result} (goal {sign} {bound:g})"


@dataclass
class Section:
    """One table of the output, with the goals that it decides."""

    name: str
    about: str
    headers: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def print(self) -> None:
        print(f"\n== {self.name}: {self.about}\n")
        lines = [self.headers, *self.rows] if self.rows else []
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.headers))] if lines else []
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        for note in self.notes:
            print(note)
        for goal in self.goals:
            print(goal)
        print(flush=True)

    def markdown(self, about: Mapping[str, Any]) -> str:
        """The table with its notes, and what it was measured on."""
        lines = [self.headers, ["---"] * len(self.headers), *self.rows]
        table = "\n".join(f"| {' | '.join(cell or '–' for cell in line)} |" for line in lines)
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        on = f"{about['processor']}, one thread, Python {about['python']}, {versions}"
        title = f"{self.about[0].upper()}{self.about[1:]}" if self.about[0].isascii() else self.about
        return "\n\n".join([title, table, "\n".join(f"- {n}" for n in self.notes), on])

    def to_json(self) -> dict[str, Any]:
        goals = [{"what": goal.what, "found": goal.measured, "met": goal.met} for goal in self.goals]
        return {"about": self.about, "notes": self.notes, "goals": goals, **self.data}


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        results = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line[:10] == "model name"]
        model = results[0] if results else model
    packages = ("numpy", "scipy", "dp-accounting", "prv-accountant", "opacus", "autodp")
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {"processor": model, "cores": os.cpu_count(), "python": platform.python_version(), "versions": versions}


def load() -> str:
    """How busy the machine is: processes that want to run, averaged over 1 and 5 minutes."""
    item, five, _ = os.getloadavg()
    return f"{item:.2f} (5 minutes: {five:.2f}) on {os.cpu_count()} cores"


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")


def fill(page: Path, sections: Sequence[Section], about: Mapping[str, Any]) -> None:
    """Puts each section between the comments <!-- NAME --> and <!-- /NAME --> of a page, if it has them."""
    places = {section.name: section.markdown(about) for section in sections}
    page.write_text(fill_text(page.read_text(encoding="utf-8"), places), encoding="utf-8")


def fill_text(text: str, places: Mapping[str, str]) -> str:
    """A page with the text of each place between its comments, if the page has them."""
    for name, content in places.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if begin in text and end in text:
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}{content}\n{end}{rest.partition(end)[2]}"
    return text


Sections: TypeAlias = Mapping[str, tuple[Callable[[int], Section], int, int]]
"""Name to what makes the section, its rounds, and its rounds with --quick."""


def add_options(parser: argparse.ArgumentParser, sections: Sections) -> None:
    """What every benchmark of sections takes on its command line."""
    parser.add_argument("--quick", action="store_true", help="fewer rounds; missed goals do not fail")
    parser.add_argument("--only", help=f"sections, separated by commas: {', '.join(sections)}")
    parser.add_argument(
        "--docs", type=Path, help="a page that has places for tables of these sections: they are filled"
    )
    parser.add_argument("--json", type=Path, help="where to write everything that was measured")


def run_sections(
    sections: Sections, parser: argparse.ArgumentParser, options: argparse.Namespace, **versions: str
) -> int:
    """Measures and prints the sections that were asked for; the exit code, 1 where a goal is missed."""
    chosen = options.only.split(",") if options.only else list(sections)
    if unknown := sorted(set(chosen) - set(sections)):
        parser.error(f"--only takes {', '.join(sections)}, not {', '.join(unknown)}")
    about = machine() | versions | {"load before": load()}
    print("one thread;", "; ".join(f"{key}: {value}" for key, value in about.items()))
    done: list[Section] = []
    for name in chosen:
        make, rounds, few = sections[name]
        section = make(few if options.quick else rounds)
        section.print()
        done.append(section)
    about["load after"] = load()
    print(f"load after: {about['load after']}")
    missed = [goal for section in done for goal in section.goals if not goal.met]
    print(f"{sum(len(section.goals) for section in done)} goals, {len(missed)} MISSED")
    for goal in missed:
        print(goal)
    if options.docs:
        fill(options.docs, done, about)
    if options.json:
        write(options.json, about | {section.name: section.to_json() for section in done})
    return 1 if missed and not options.quick else 0


def run_script(sections: Sections, about: str | None, arguments: Sequence[str] | None = None) -> int:
    """The command line of a benchmark that is nothing but sections; the exit code."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, sections)
    return run_sections(sections, parser, parser.parse_args(arguments))

"""The scoreboard of accountants: what each says about a public grid of events, beside enclosures of the truth.

    python benchmarks/scoreboard.py --python PATH --python jax_privacy=PATH   # asks, and writes scoreboard.json
    python benchmarks/scoreboard.py --docs                                    # writes the pages from scoreboard.json

Each question is one process with a limit on its processor time and memory. What scoreboard.json has is not asked again,
unless the question or the version of the library has changed or ``--again`` is given; a run that was ended goes on.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import argparse
import datetime
import functools
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import scoreboard_events
from paired_times import fill_text, machine, paired, times_faster
from scoreboard_events import Row
from scoreboard_worker import MARK, PEERS, Question

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
RESULTS = HERE / "scoreboard.json"
WORKER = HERE / "scoreboard_worker.py"
SECONDS, MEMORY_GIB = 60, 8
"""Of processor time, and of address space, for one question."""
IDLE = 60.0
"""Seconds without any work after which a question is ended."""
REFERENCE_WIDTH = 1e-5
SAME = 1e-8
"""Relative: a smaller difference is the rounding of a library that does not count it."""
NARROW = 2e-3
"""An enclosure that is no wider, relatively, tells how far an answer is from the truth."""
OURS = "dpassay"
TIMES = (10, 100, 1000, 10_000, 100_000, 1_000_000)
"""Steps of the figure."""
OF_FIGURE = (OURS, "pld_accounting", "opake")

Cell: TypeAlias = Mapping[str, Any]


# ---- asking ---------------------------------------------------------------------------------------------------------


class Worker:
    """A process that asks one accountant; it is started by the first question."""

    def __init__(self, python: str, name: str) -> None:
        self.command = [python, str(WORKER), name]
        self._process: subprocess.Popen[str] | None = None

    @functools.cached_property
    def about(self) -> dict[str, str]:
        """Version of the package and of Python; empty if it is not installed."""
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=nothing, text=True)
        return self._read()

    def ask(
        self, question: Question, *, seconds: float = SECONDS, memory_gib: float = MEMORY_GIB, **more: Any
    ) -> dict[str, Any]:
        """What the worker answers: see `scoreboard_worker.answer` and `in_a_process`.

        Args:
            question: what is asked.
            seconds: of processor time that the answer may take.
            memory_gib: address space that it may need.
            more: further entries of the line that the worker reads.
        """
        data = {"question": asdict(question), "limits": [seconds, IDLE, memory_gib], **more}
        self.about  # noqa: B018  # starts it
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(data) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process is not None
        for line in self._process.stdout or ():
            if line.startswith(MARK):
                result: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return result
        raise RuntimeError(f"{' '.join(self.command)} ended")

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def measure(
    rows: Sequence[Row], peers: Sequence[str], pythons: Mapping[str, str], *, again: bool, seconds: float, path: Path
) -> None:
    """Asks what has no answer yet, and stores each answer at once."""
    results = load(path)
    workers = {name: Worker(pythons[name], name) for name in peers}
    exact = Worker(sys.executable, "enclosures")
    installed = {name: worker.about for name, worker in workers.items() if worker.about}
    results["about"] |= {
        "processor": machine()["processor"],
        "seconds": seconds,
        "memory_gib": MEMORY_GIB,
        "packages": results["about"].get("packages", {}) | installed,
    }
    for row in rows:
        question = asdict(row.question)
        entry = results["events"].setdefault(row.name, {})
        if entry.get("question") != question or "enclosures" not in entry:
            say(f"{row.name}: enclosures")
            entry.clear()
            entry.update(question=question, section=row.section, answers={}, enclosures=enclosures(exact, row.question))
            store(results, path)
        for name in peers:
            if name not in installed:
                continue
            known = entry["answers"].get(name)
            if known and _holds(known, installed[name]["version"], seconds) and not again:
                continue
            cell = workers[name].ask(row.question, seconds=seconds)
            if "not_installed" in cell:
                say(f"{name} cannot be imported: {cell['not_installed']}")
                continue
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            entry["answers"][name] = cell | {"version": installed[name]["version"], "date": today}
            say(f"{row.name}: {name}: {reading(cell, entry, name).text}")
            store(results, path)
    order = {row.name: k for k, row in enumerate(scoreboard_events.rows())}
    results["events"] = {
        name: results["events"][name] for name in sorted(order, key=order.__getitem__) if name in results["events"]
    }
    store(results, path)


def _holds(cell: Cell, version: str, seconds: float) -> bool:
    """Whether an answer is that of this version, and was not ended earlier than it would be now."""
    return bool(cell["version"] == version and cell.get("hung", seconds) >= seconds)


def enclosures(worker: Worker, question: Question) -> dict[str, Any]:
    """The narrowest that there are, else those at the default width, else none."""
    for width in (REFERENCE_WIDTH, 1e-3):
        result = worker.ask(question, seconds=600, memory_gib=12, width=width)
        if "both" in result:
            return result
    return {}


def measure_figure(pythons: Mapping[str, str], *, again: bool, seconds: float, path: Path) -> None:
    """One of t steps, by those who have both ends or much speed."""
    results = load(path)
    workers = {name: Worker(pythons[name], name) for name in OF_FIGURE}
    for steps in TIMES:
        entry = results["allocation"].setdefault(str(steps), {})
        for name, worker in workers.items():
            if worker.about and (again or name not in entry):
                entry[name] = worker.ask(scoreboard_events.allocation(steps), seconds=seconds)
                say(f"1 of {steps} steps: {name}: {entry[name]}")
                store(results, path)
    for worker in workers.values():
        worker.close()


def measure_groups(path: Path, rounds: int = 7) -> None:
    """The time of a group of 10 beside that of one record, in turns, with nothing remembered."""
    from equal_accuracy import forget

    from dpassay.accounting.lattice.accountant import Lattice

    def ask(noise: float, unit: str | None) -> float:
        forget()
        return Lattice("add_remove", unit).compose(scoreboard_events.sgd(noise, 0.01, 500)).epsilon(1e-5).value

    results = load(path)
    for noise in (1.0, 2.0, 4.0):
        works = {"one": partial(ask, noise, None), "group": partial(ask, noise, "group(10)")}
        done = paired(works, rounds)
        results["groups"][f"{noise:g}"] = {name: each.answer for name, each in done.items()} | {
            "one_ms": done["one"].cpu_ms,
            "group_ms": done["group"].cpu_ms,
            "ratio": times_faster(done["one"], done["group"]),
        }
        say(f"groups of 10 at σ {noise:g}: {results['groups'][f'{noise:g}']}")
    store(results, path)


def load(path: Path) -> dict[str, Any]:
    if path.exists():
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return known
    return {"about": {}, "events": {}, "allocation": {}, "groups": {}}


def store(results: Mapping[str, Any], path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """What an answer means.

    Attributes:
        kind: ``within``, ``above``, ``below`` where the truth is known; ``smaller``, ``equal``, ``larger`` than
            dpassay's upper bound where it is not; ``alone`` where dpassay has none; ``infinite``; ``refused``,
            ``hung``, ``memory``, ``missing`` without an answer.
        amount: relative: below the lower end, above the upper end, or from dpassay's.
        one_way: the answer is for one direction only, and compared with that.
    """

    kind: str
    amount: float = 0.0
    one_way: str = ""

    @property
    def answers(self) -> bool:
        return self.kind in _ANSWERS

    @property
    def text(self) -> str:
        amount = "" if self.kind in ("within", "equal") or not self.amount else f" {self.amount:.1e}"
        return _WORDS.get(self.kind, self.kind) + amount + ("†" if self.one_way else "")


_ANSWERS = ("within", "above", "below", "smaller", "equal", "larger", "alone")
_WORDS = {"missing": "–", "infinite": "∞", "memory": "memory", "equal": "as dpassay", "alone": "alone"}


def reading(cell: Cell, entry: Mapping[str, Any], name: str = "") -> Reading:
    """An answer against the enclosure of the same question, or, where that has no lower end, against dpassay's.

    Args:
        cell: what an accountant said.
        entry: the event of scoreboard.json that it was said about.
        name: of the accountant.
    """
    for kind in ("missing", "refused", "hung", "memory"):
        if kind in cell:
            return Reading(kind)
    value, direction = float(cell["epsilon"]), cell.get("direction", "")
    if math.isnan(value):
        return Reading("refused")
    if math.isinf(value):
        return Reading("infinite")
    known = entry["enclosures"]
    one_way = direction if direction in known else ""
    lower, upper = known.get(direction or "both", known.get("both", (None, None)))
    if lower is not None and value < lower * (1 - SAME):
        return Reading("below", (lower - value) / lower, one_way)
    if lower is not None and upper - lower <= NARROW * upper:
        if value <= upper * (1 + SAME):
            return Reading("within", 0.0, one_way)
        return Reading("above", (value - upper) / upper, one_way)
    own = entry["answers"].get(OURS, {}).get("epsilon")
    if own is None:
        return Reading("equal" if name == OURS else "alone", 0.0, one_way)
    kind = "equal" if abs(value - own) <= SAME * own else "smaller" if value < own else "larger"
    return Reading(kind, abs(value - own) / own, one_way)


def tighter(entry: Mapping[str, Any], name: str) -> float:
    """How far an answer that is not below the truth lies below dpassay's, relatively; 0 where it does not."""
    cell, own = entry["answers"].get(name), entry["answers"].get(OURS, {}).get("epsilon")
    if cell is None or "epsilon" not in cell or reading(cell, entry, name).kind == "below":
        return 0.0
    if cell.get("direction") or own is None:
        return 0.0
    return max(0.0, (float(own) - float(cell["epsilon"])) / float(own))


def lower_end_too_high(cell: Cell, entry: Mapping[str, Any]) -> float:
    """How far a lower bound on ε lies above the truth, relatively; 0 where it does not."""
    known = entry["enclosures"].get(cell.get("direction") or "both", (None, None))
    if "lower" not in cell or known[0] is None:
        return 0.0
    upper = float(known[1])
    excess = (float(cell["lower"]) - upper) / upper
    return excess if excess > SAME else 0.0


# ---- the page -------------------------------------------------------------------------------------------------------

_TRANSFORM = (
    "A power multiplies the rounding of a Fourier transform, and the library does not count it, as "
    "[here](speed.md#why-are-some-answers-invalid)."
)
CAUSES: dict[tuple[str, str], str] = {
    ("randomised response", "dp_accounting_pld"): (
        "The count of the event is ignored: log 5 is what one run costs. Composed 20 times, one by one, it answers "
        "32.178."
    ),
    **{
        (event, name): text
        for event, text in (
            ("Gaussian, σ 100", f"The event is one Gaussian with σ = 1: 7.868736 by the closed form. {_TRANSFORM}"),
            ("rare", _TRANSFORM),
            ("many steps", _TRANSFORM),
        )
        for name in ("dp_accounting_pld", "riskcal", "jax_privacy")
    },
    ("small δ", "opacus_prv"): (
        "A transform that is tilted towards this loss, so that its rounding is relative, gives 3.91430 (a test)."
    ),
    ("without replacement, 10 of 1,000", "jax_privacy"): (
        "It composes Poisson samples at twice the sensitivity. This is exact for one release of a replaced record. "
        "That no records and queries cost more in a composition has no proof that we know of, and dpassay's bound "
        "allows for them."
    ),
}
"""Beginnings of an event and of an accountant to why an answer is below the truth, or smaller than dpassay's."""


@dataclass
class Notes:
    """Footnotes in the order of their first use."""

    texts: list[str]

    def mark(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f"<sup>{self.texts.index(text) + 1}</sup>"


def present(results: Mapping[str, Any]) -> list[str]:
    """The accountants that have been asked, in the order of the page."""
    asked = {name for entry in results["events"].values() for name in entry["answers"]}
    return [name for name in PEERS if name in asked]


def summary(results: Mapping[str, Any]) -> str:
    """Per accountant: how often it answers, how near the truth, how fast."""
    entries = results["events"]
    exact = sum(_is_exact(entry) for entry in entries.values())
    headers = (
        "accountant", "answers", "below the exact ε", "at most 1e-3 above", "at most 1e-2", "further above",
        "smaller / as / larger than dpassay's bound", "median time",
    )  # fmt: skip
    lines = []
    for name in present(results):
        items = _readings(entries.values(), name)
        kinds = [item.kind for item, _ in items]
        above = [item.amount for item, _ in items if item.kind in ("within", "above")]
        seconds = [cell["seconds"] for item, cell in items if item.answers]
        lines.append(
            (
                PEERS[name].shown,
                f"{sum(item.answers for item, _ in items)} of {len(items)}",
                f"{kinds.count('below')}",
                f"{sum(amount <= 1e-3 for amount in above)}",
                f"{sum(1e-3 < amount <= 1e-2 for amount in above)}",
                f"{sum(amount > 1e-2 for amount in above)}",
                "–" if name == OURS else " / ".join(f"{kinds.count(kind)}" for kind in ("smaller", "equal", "larger")),
                duration(statistics.median(seconds)) if seconds else "–",
            )
        )
    first = (
        f"{len(entries)} events, asked {dates(results)}. The exact ε of {exact} is known to a relative {NARROW:g} or "
        "better, mostly to 1e-5; of the others dpassay knows an upper bound."
    )
    if unasked := _unasked(results):
        first += (
            f" {unasked} of the {len(scoreboard_events.rows())} events of the grid have not been asked of everyone."
        )
    return f"{first}\n\n{table(headers, lines)}"


def _unasked(results: Mapping[str, Any]) -> int:
    """Events that some accountant, of those that were asked anything, has not been asked."""
    peers = present(results)
    asked = (results["events"].get(row.name, {}).get("answers", {}) for row in scoreboard_events.rows())
    return sum(any(name not in answers for name in peers) for answers in asked)


def _readings(entries: Iterable[Mapping[str, Any]], name: str) -> list[tuple[Reading, Cell]]:
    return [(reading(e["answers"][name], e, name), e["answers"][name]) for e in entries if name in e["answers"]]


def _is_exact(entry: Mapping[str, Any]) -> bool:
    lower, upper = entry["enclosures"].get("both", (None, None))
    return lower is not None and upper - lower <= NARROW * upper


def dates(results: Mapping[str, Any]) -> str:
    days = sorted({cell["date"] for entry in results["events"].values() for cell in entry["answers"].values()})
    if not days:
        return "never"
    return f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"


def kinds(results: Mapping[str, Any]) -> str:
    """Per accountant and kind of events: how many it answers, and how far the worst answer is above the exact ε."""
    notes = Notes([])
    sections: dict[str, dict[str, Mapping[str, Any]]] = {}
    for event, entry in results["events"].items():
        sections.setdefault(entry["section"], {})[event] = entry
    lines = [
        (PEERS[name].shown, *(shown(entries, name, notes) for entries in sections.values()))
        for name in present(results)
    ]
    headers = ("accountant", *(f"{section} ({len(entries)})" for section, entries in sections.items()))
    listed = "\n".join(f"{k + 1}. {text}" for k, text in enumerate(notes.texts))
    return table(headers, lines) + (f"\n\n{listed}" if listed else "")


def shown(entries: Mapping[str, Mapping[str, Any]], name: str, notes: Notes) -> str:
    """A cell of the table: the answers to these events."""
    asked = {event: entry for event, entry in entries.items() if name in entry["answers"]}
    readings = {event: reading(entry["answers"][name], entry, name) for event, entry in asked.items()}
    answers = [item for item in readings.values() if item.answers]
    if not answers:
        return "–"
    text = f"{len(answers)}"
    if errors := [item.amount for item in answers if item.kind in ("within", "above")]:
        text += f", {max(errors):.0e}" if max(errors) else ", exact"
    if low := sum(item.kind == "below" for item in answers):
        text += f", **{low} below**"
    for event, item in readings.items():
        if item.kind in ("below", "smaller"):
            text += notes.mark(_why(event, asked[event], name, item))
        cell = asked[event]["answers"][name]
        if excess := lower_end_too_high(cell, asked[event]):
            says = f"{PEERS[name].shown}, {event}: its lower end {float(cell['lower']):.6g}"
            text += notes.mark(f"{says} is above the exact ε by {excess:.1e}. {reproduce(event, name)}")
    return text


def _why(event: str, entry: Mapping[str, Any], name: str, item: Reading) -> str:
    cause = next((text for (what, who), text in CAUSES.items() if event.startswith(what) and name.startswith(who)), "")
    if item.kind == "below":
        known = entry["enclosures"].get(item.one_way or "both")
        other = f"where ε is at least {known[0]:.6g}"
    else:
        other = f"and dpassay {entry['answers'][OURS]['epsilon']:.6g}"
    says = f"{PEERS[name].shown}, {event}: {float(entry['answers'][name]['epsilon']):.6g}, {other}."
    return " ".join(part for part in (says, cause, reproduce(event, name)) if part)


def reproduce(event: str, name: str) -> str:
    return f'`python benchmarks/scoreboard.py --again --only "{event}" --peers {name}`'


def peers_list(results: Mapping[str, Any]) -> str:
    """What was asked, in which version, and how."""
    packages = results["about"]["packages"]
    lines = []
    for name in present(results):
        package = packages[name]
        version = "this one" if name == OURS else package["version"]
        lines.append((PEERS[name].shown, PEERS[name].package, f"{version}, {package['python']}", PEERS[name].asked))
    about = results["about"]
    last = (
        f"{about['processor']}, one thread; {about['seconds']:g} s of processor time and {about['memory_gib']} GiB for "
        "a question."
    )
    return table(("accountant", "package", "version, Python", "asked by"), lines) + f"\n\n{last}"


def groups(results: Mapping[str, Any]) -> str:
    """The time of a group beside that of one record."""
    ratios = [each["ratio"] for each in results["groups"].values()]
    if not ratios:
        return "–"
    return (
        f"A group of 10 (500 steps at rate 0.01) takes dpassay {min(ratios):.2f} to {max(ratios):.2f} times the time "
        f"of one record, at σ = {', '.join(results['groups'])}."
    )


def of_figure(results: Mapping[str, Any]) -> dict[str, list[tuple[int, float, float]]]:
    """Per accountant: t, seconds, and how far its upper bound lies above a certified lower one, relatively."""
    lines: dict[str, list[tuple[int, float, float]]] = {}
    for steps, entry in results["allocation"].items():
        low = entry.get(OURS, {}).get("lower")
        for name, cell in entry.items():
            if "epsilon" in cell and low is not None:
                error = (float(cell["epsilon"]) - low) / float(cell["epsilon"])
                lines.setdefault(name, []).append((int(steps), cell["seconds"], error))
    return lines


def allocation_table(results: Mapping[str, Any]) -> str:
    """The numbers of the figure."""
    names = [name for name in OF_FIGURE if any(name in entry for entry in results["allocation"].values())]
    lines = []
    for steps, entry in results["allocation"].items():
        low = entry.get(OURS, {}).get("lower")
        cells = []
        for name in names:
            cell = entry.get(name, {})
            if "epsilon" not in cell:
                cells.append(next((kind for kind in ("hung", "memory", "refused") if kind in cell), ""))
                continue
            end = (
                f"[{float(cell['lower']):.5g}, {float(cell['epsilon']):.5g}]"
                if "lower" in cell
                else f"≤ {float(cell['epsilon']):.5g}"
            )
            far = "" if low is None else f", {(float(cell['epsilon']) - low) / float(cell['epsilon']):.1e}"
            cells.append(f"{end}{far}, {duration(cell['seconds'])}")
        lines.append((f"{int(steps):,}", *cells))
    return table(("t", *(PEERS[name].shown for name in names)), lines)


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Time and width against t, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style: Any = {"svg.hashsalt": "scoreboard", "svg.fonttype": "none", "font.size": 10, "font.family": "sans-serif"}
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
        for name, points in of_figure(results).items():
            marker = {OURS: "o", "pld_accounting": "s"}.get(name, "^")
            steps, seconds, errors = zip(*sorted(points), strict=True)
            axes[0].loglog(steps, seconds, marker=marker, label=PEERS[name].shown)
            axes[1].loglog(steps, errors, marker=marker, label=PEERS[name].shown)
        axes[0].set(xlabel="steps t", ylabel="seconds", title="time")
        axes[1].set(xlabel="steps t", ylabel="relative", title="upper bound over certified lower bound")
        for each in axes:
            each.grid(alpha=0.3)
            each.spines[["top", "right"]].set_visible(False)
        if axes[0].has_data():
            axes[0].legend(frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def table(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [headers, ["---"] * len(headers), *lines]
    return "\n".join(f"| {' | '.join(cell or '–' for cell in line)} |" for line in rows)


def duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms" if seconds >= 1e-3 else "< 1 ms"


def pages(results: Mapping[str, Any]) -> dict[Path, dict[str, str]]:
    """What is generated: page to name of the place to its text."""
    return {
        DOCS / "measurements" / "scoreboard.md": {
            "summary": summary(results),
            "kinds": kinds(results),
            "accountants": peers_list(results),
            "groups": groups(results),
            "allocation": allocation_table(results),
        },
    }


# ---- the command line -----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="events whose names contain this text; may be repeated")
    parser.add_argument("--peers", help=f"accountants, separated by commas: {', '.join(PEERS)}")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="[NAME=]PATH",
        help="the Python on which the accountants whose names begin with NAME run; without NAME, of all but dpassay",
    )
    parser.add_argument("--again", action="store_true", help="asks again what has been answered")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of one question, in processor time")
    parser.add_argument("--docs", action="store_true", help="writes the pages from what was measured; asks nothing")
    options = parser.parse_args(arguments)
    if options.docs:
        results = load(RESULTS)
        for page, places in pages(results).items():
            page.write_text(fill_text(page.read_text(encoding="utf-8"), places), encoding="utf-8")
        draw(results, DOCS / "measurements" / "scoreboard.svg")
        return 0
    peers = options.peers.split(",") if options.peers else list(PEERS)
    if unknown := sorted(set(peers) - set(PEERS)):
        parser.error(f"--peers takes {', '.join(PEERS)}, not {', '.join(unknown)}")
    rows = [
        row for row in scoreboard_events.rows() if not options.only or any(text in row.name for text in options.only)
    ]
    if not rows:
        parser.error(f"--only: no event has {' or '.join(options.only)} in its name")
    pythons = interpreters(options.python)
    start = time.time()
    measure(rows, peers, pythons, again=options.again, seconds=options.seconds, path=RESULTS)
    if not options.only:
        chosen = {name: pythons[name] for name in PEERS}
        measure_figure(chosen, again=options.again, seconds=options.seconds, path=RESULTS)
        measure_groups(RESULTS)
    say(f"{(time.time() - start) / 60:.0f} minutes")
    return 0


def interpreters(given: Sequence[str]) -> dict[str, str]:
    """Accountant to the Python that has it."""
    results = dict.fromkeys(PEERS, sys.executable)
    for text in sorted(given, key=lambda text: "=" in text):
        beginning, _, path = text.rpartition("=")
        for name in PEERS:
            if name != OURS and name.startswith(beginning):
                results[name] = path
    return results


if __name__ == "__main__":
    sys.exit(main())

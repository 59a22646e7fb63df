"""How often `dpassay audit runs` refutes generators that are right.

    python benchmarks/many_runs_alarms.py [-o FILE.json] [--runs 60] [--repetitions 1000] [--workers 2] [--seed 0]
        [--generators NAME ...]
    python benchmarks/many_runs_alarms.py --table FILE.json

Four generators meet their claim and no smaller one. Two are those of `seeded_bugs.py`, one for each adjacency, with
ε = 1. `randomised response` has two outcomes, the likelier of which has probability 0.73. `right with delta` claims
ε = 1 at δ = 0.05: in every twentieth run it publishes its counts without noise, and says so. Each repetition is a whole
audit: neighbours by all default strategies, a probe if there are runs for it, and rounds until the claim is refuted. At
confidence 95% at most 5% of the repetitions may refute. A row holds the alarms, their exact 95% interval, and the
probability that at least as many happen if the rate is 5%: a small one would show that audits err too often.

RUNS are the most runs of an audit. The table is printed as Markdown.

Finished audits are kept beside FILE.json, ten to a line of FILE.pieces.jsonl, and the same command resumes. A line
holds the digest of the code of audits; lines of other code are not used.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from seeded_bugs import EPSILON, OLD, RIGHT, USUAL, Case, Rows, no_noise, right_for_add_remove

from dpassay.accounting import ApproxDP, PureDP
from dpassay.auditing.many_runs.run import audit_function
from dpassay.audits.statistics.binomial import clopper_pearson

ROOT = Path(__file__).resolve().parents[1]
BETA = 0.05
ROWS = [*USUAL, OLD]
"""The records that neighbours are made like; one of them is from the south."""

_PIECE = 10  # repetitions that a worker makes at a time

Row = dict[str, Any]


@dataclass(frozen=True)
class Response:
    """A generator of one row, whose city is `south` with a probability that depends on whether a record has it.

    Attributes:
        without, with_it: the probabilities.
    """

    without: float
    with_it: float

    def __call__(self, rows: Rows, seed: int) -> Rows:
        rate = self.with_it if any(item["city"] == "south" for item in rows) else self.without
        shown = np.random.default_rng(seed).random() < rate
        return [{"city": "south" if shown else "north", "age": 40.0}]


def digest_of_code() -> str:
    """SHA-256 of the code that audits rest on."""
    folders = ("attacks/black_box", "audits/games", "audits/statistics", "auditing/many_runs")
    files = sorted(path for name in folders for path in (ROOT / name).glob("*.py"))
    content = b"".join(path.read_bytes() for path in (*files, ROOT / "benchmarks" / "seeded_bugs.py"))
    return hashlib.sha256(content).hexdigest()


class KeptResults(Executor):
    """Submits calls to another executor, but for those whose results a file holds; it gets the others.

    Args:
        executor: the other one.
        path: of the file, a result a line.
    """

    def __init__(self, executor: Executor, path: Path) -> None:
        self._executor, self._path, self._code = executor, path, digest_of_code()
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [json.loads(line) for line in lines if line.endswith("}")]  # the last one may have been cut off
        if len(kept) < len(lines):
            path.write_text("".join(f"{line}\n" for line in lines if line.endswith("}")), encoding="utf-8")
        self._known = {item["call"]: item["result"] for item in kept if item["code"] == self._code}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = hashlib.sha256(repr((fn.__name__, args, kwargs)).encode()).hexdigest()
        if call in self._known:
            future = Future[Any]()
            future.set_result(self._known[call])
            return future
        future = self._executor.submit(fn, *args, **kwargs)
        future.add_done_callback(lambda done: self._keep(call, done))
        return future

    def _keep(self, call: str, done: Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        line = json.dumps({"code": self._code, "call": call, "result": done.result()})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


DELTA = 0.05


def right_with_delta(rows: Rows, seed: int) -> Rows:
    """(1, δ)-DP and no more: exact counts with probability δ, with a row that says so, and else those that are right.

    An event among exact outputs has probability at most δ, and any other is at most e times likelier on D′; that the
    counts are exact and those of D′ has probability δ on D′ and 0 on D.
    """
    if np.random.default_rng([seed, 1]).random() >= DELTA:
        return right_for_add_remove(rows, seed)
    return [*no_noise(rows, seed), {"city": "exact", "age": None}]


EXACT: dict[str, tuple[Case, PureDP | ApproxDP]] = {
    **{case.name: (case, PureDP(EPSILON)) for case in RIGHT},
    "randomised_response": (
        dataclasses.replace(
            RIGHT[0],
            name="randomised_response",
            generate=Response(1 / (1 + math.exp(EPSILON)), 1 / (1 + math.exp(-EPSILON))),
        ),
        PureDP(EPSILON),
    ),
    "right_with_delta": (
        dataclasses.replace(RIGHT[0], name="right_with_delta", generate=right_with_delta),
        ApproxDP(EPSILON, DELTA),
    ),
}
"""Generators that meet a claim and no smaller one, by name, each with its claim."""


def audit(case: Case, claim: PureDP | ApproxDP, runs: int, seed: int) -> tuple[bool, str]:
    """Whether one audit refutes, and the pair that it names."""
    result = audit_function(
        case.generate,
        ROWS,
        claim=claim,
        runs=runs,
        seed=seed,
        adjacency=case.adjacency,
        confidence=1 - BETA,
    )
    return bool(result.details["refuted"]), str(result.details["tested"]["pair"])


def audits(name: str, runs: int, seeds: list[int]) -> list[tuple[bool, str]]:
    """Several audits of a generator by name, for another process."""
    return [audit(*EXACT[name], runs, seed) for seed in seeds]


def row(case: Case, runs: int, repetitions: int, seed: int, executor: Executor) -> Row:
    """Repeated audits of one generator."""
    index = list(EXACT).index(case.name)
    drawn = np.random.SeedSequence([seed, runs, index]).generate_state(repetitions, np.uint64) >> np.uint64(1)
    pieces = [drawn[begin : begin + _PIECE].tolist() for begin in range(0, repetitions, _PIECE)]
    tasks = [executor.submit(audits, case.name, runs, piece) for piece in pieces]
    results = [item for task in tasks for item in task.result()]
    alarms = sum(refuted for refuted, _ in results)
    interval = clopper_pearson(alarms, repetitions, confidence=0.95)
    return {
        "generator": case.name,
        "adjacency": case.adjacency,
        "runs": runs,
        "alarms": alarms,
        "repetitions": repetitions,
        "interval": [interval.lower, interval.upper],
        "p_value": float(stats.binom.sf(alarms - 1, repetitions, BETA)),
        "tested": dict(Counter(pair for _, pair in results).most_common()),
    }


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| generator | most runs | alarms | rate, 95% interval | at least as many if 5% | different pairs named |"]
    lines.append("| --- " * 6 + "|")
    for item in rows:
        low, high = (100 * end for end in item["interval"])
        rate = 100 * item["alarms"] / item["repetitions"]
        lines.append(
            f"| {item['generator'].replace('_', ' ')} | {item['runs']} | {item['alarms']} of {item['repetitions']} "
            f"| {rate:.2f}% ({low:.2f}–{high:.2f}) | {item['p_value']:.3g} | {len(item['tested'])} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where rows are kept, as JSON")
    parser.add_argument("--runs", nargs="+", type=int, default=[60], help="most runs of an audit (60)")
    parser.add_argument("--repetitions", type=int, default=1000, help="of each audit (1000)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=0, help="of all runs (0)")
    parser.add_argument("--generators", nargs="+", choices=EXACT, default=list(EXACT), help="that are right (all)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="only print the table of such a file")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text(encoding="utf-8"))["alarms"]))
        return
    alarms = list[Row]()
    with ProcessPoolExecutor(options.workers) as processes:
        pieces = options.output.with_suffix(".pieces.jsonl") if options.output else None
        executor = KeptResults(processes, pieces) if pieces else processes
        for runs in options.runs:
            for case, _ in (EXACT[name] for name in options.generators):
                alarms.append(row(case, runs, options.repetitions, options.seed, executor))
                if options.output:
                    text = json.dumps({"alarms": alarms}, indent=1, ensure_ascii=False)
                    options.output.write_text(f"{text}\n", encoding="utf-8")
    print(table(alarms))


if __name__ == "__main__":
    main()

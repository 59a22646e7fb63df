"""How often `dpassay audit runs` refutes eleven generators with a planted leak, and which cause it names.

    python benchmarks/leak_power.py [--runs 50 200 1000] [--repetitions 5] [--generators …] [--twins]
    python benchmarks/leak_power.py --by-hand | --tables

The generators are the five of `seeded_bugs.py`, the six of `seeded_leaks.py`, and with --twins the twins of these, on
which every refutation is false. Each audit is a whole one, of the claim ε = 1, with the default neighbours; RUNS are
all of its runs. `leak_power.json` has a row for each audit: whether it refuted, what it gave as the cause, and its
seconds of processor time. Audits that are in the file are not made again, so the same command resumes.

Whether a cause is the planted one is decided by `RIGHT_CAUSES`.

*By hand*, 200 runs on the neighbours and with the score that a leak was planted for show what a search could reach.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from seeded_bugs import BUGS, EPSILON, OLD, USUAL, Generator, Rows, counts
from seeded_leaks import LEAKS, MONTHS

from dpassay.accounting import PureDP
from dpassay.auditing.many_runs import run
from dpassay.auditing.many_runs.run import audit_function
from dpassay.audits.statistics.binomial import epsilons_clopper_pearson
from dpassay.base.number_format import format_lower

FILE = Path(__file__).with_name("leak_power.json")
RUNS = (50, 200, 1000)
THRESHOLDS = tuple(range(1, 13))
"""Of scores by hand; none has more values."""
RECORDS: Rows = [*USUAL, OLD]
"""What neighbours are made like; they show no leak themselves."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Audited:
    """A generator that claims ε = 1.

    Attributes:
        generate: the generator.
        adjacency: of the claim.
        cause: what is wrong with it; nothing if it is right.
        records: what neighbours are made like.
        data, neighbor: neighbours that show the leak.
        score: from an output to a number that is larger on the neighbor.
    """

    generate: Generator
    adjacency: str
    cause: str
    records: Rows
    data: Rows
    neighbor: Rows
    score: Callable[[Rows], int]


def generators() -> dict[str, Audited]:
    """By name, those with a leak first."""
    result = {}
    for case in BUGS:
        score = functools.partial(_score_of_counts, case.score)
        cause = BUG_CAUSES[case.name]
        result[case.name] = Audited(case.generate, case.adjacency, cause, RECORDS, case.data, case.neighbor, score)
    months: Rows = [{"month": 1 + index % MONTHS, **row} for index, row in enumerate(RECORDS)]
    for leak in LEAKS:
        records = months if "month" in leak.data[0] else RECORDS
        wrong = Audited(leak.generate, leak.adjacency, leak.cause, records, leak.data, leak.neighbor, leak.score)
        result[leak.name] = wrong
        result[leak.twin.__name__] = dataclasses.replace(wrong, generate=leak.twin, cause="")
    return dict(sorted(result.items(), key=lambda item: not item[1].cause))


def _score_of_counts(score: Callable[[Sequence[int]], int], table: Rows) -> int:
    return score(counts(table))


BUG_CAUSES = {
    "sensitivity_of_one": "The noise covers a record that is added, but the claim is about one that is replaced.",
    "budget_not_split": "Each of two columns is counted with the whole ε.",
    "labels_from_data": "Only cities that occur are counted.",
    "singletons_suppressed": "Cities that occur once are left out before noise is added.",
    "range_from_data": "Age groups reach from the smallest to the largest age that occurs.",
}
_CITY = "column 'city' has the target's value|a cell has a value of the target"
RIGHT_CAUSES = {
    "sensitivity_of_one": "target",  # counts of what a record changes: their noise is too small
    "budget_not_split": "target",
    "labels_from_data": _CITY,
    "singletons_suppressed": _CITY,
    "range_from_data": "(largest|smallest) value of column 'age'",
    "decimals_from_data": "decimals",
    "ages_of_records": "column 'age' has the target's value",
    "noise_cached_by_count": "equally often",
    "most_common_first": "first row|last row|row before|row that is most like",  # the order of rows
    "redrawn_until_complete": _CITY,
    "each_month_all_so_far": "target",
}
"""What a cause must say to be the planted one, a regular expression."""


def rows_of(name: str, runs: int, repetitions: int, known: set[tuple[Any, ...]]) -> Iterator[Row]:
    """A row for each audit of a generator that is not known."""
    audited = generators()[name]
    seeds = np.random.SeedSequence([runs, *name.encode()]).generate_state(repetitions, np.uint64) >> np.uint64(1)
    for seed in seeds.tolist():
        if (name, runs, seed) in known:
            continue
        start = time.process_time()
        result = audit_function(
            audited.generate,
            audited.records,
            claim=PureDP(EPSILON),
            runs=runs,
            seed=seed,
            adjacency=audited.adjacency,
            confidence=0.95,
        )
        details = result.details
        yield {
            "generator": name,
            "runs": runs,
            "seed": seed,
            "refuted": bool(details["refuted"]),
            "cause": str(details["cause"]),
            "pair": details["tested"]["pair"],
            "ran": details["runs"],
            "seconds": round(time.process_time() - start, 3),
            "commit": commit(),
        }


def commit() -> str:
    """The commit of the code that audits."""
    folder = Path(str(run.__file__)).parent
    done = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=folder, capture_output=True, text=True)
    return done.stdout.strip()


def by_hand(name: str, repetitions: int) -> Row:
    """The bound on ε from 100 runs on each planted neighbour; the threshold of the score is fixed on 100 others."""
    audited, rng = generators()[name], np.random.default_rng(len(name))

    def scores(rows: Rows) -> list[int]:
        return [audited.score(audited.generate(rows, seed)) for seed in rng.integers(2**62, size=100).tolist()]

    def bounds(thresholds: Sequence[int]) -> list[float]:
        without, with_it = (np.array(scores(rows)) for rows in (audited.data, audited.neighbor))
        fp, tp = (np.array([(seen >= threshold).sum() for threshold in thresholds]) for seen in (without, with_it))
        return list(epsilons_clopper_pearson(tp, 100 - tp, fp, 100 - fp, delta=0.0, confidence=0.95))

    results = []
    for _ in range(repetitions):
        chosen = int(np.argmax(bounds(THRESHOLDS)))
        results.append(float(bounds([THRESHOLDS[chosen]])[0]))
    refuted = sum(result > EPSILON for result in results)
    return {"generator": name, "median": float(np.median(results)), "refuted": refuted, "repetitions": repetitions}


def tables(audits: list[Row], hand: list[Row]) -> dict[str, Any]:
    """The tables of the guide: what was refuted and named, and false alarms."""
    known = generators()
    reached = {row["generator"]: row for row in hand}

    def share(name: str, runs: int) -> str:
        rows = [row for row in audits if (row["generator"], row["runs"]) == (name, runs)]
        return f"{sum(row['refuted'] for row in rows)} of {len(rows)}" if rows else "–"

    def named(name: str) -> str:
        rows = [row for row in audits if row["generator"] == name and row["refuted"]]
        return f"{sum(is_right(row) for row in rows)} of {len(rows)}" if rows else "–"

    columns = [{"title": "generator", "key": "generator"}, {"title": "planted cause", "key": "cause"}]
    columns += [{"title": f"{runs} runs", "key": str(runs)} for runs in RUNS]
    columns += [{"title": "cause named right", "key": "named"}, {"title": "by one threshold, 200 runs", "key": "hand"}]
    rows = []
    for name, audited in known.items():
        if audited.cause:
            row = {"generator": name.replace("_", " "), "cause": audited.cause.removesuffix("."), "named": named(name)}
            row |= {str(runs): share(name, runs) for runs in RUNS}
            rows.append({**row, "hand": by_hand_in_words(reached.get(name))})
    twins = [name for name, audited in known.items() if not audited.cause]
    alarms = [{"generator": name.replace("_", " "), "alarms": share(name, 200)} for name in twins]
    shown = [{"title": "generator", "key": "generator"}, {"title": "refuted at 200 runs", "key": "alarms"}]
    return {"leaks": {"columns": columns, "rows": rows}, "twins": {"columns": shown, "rows": alarms}}


def by_hand_in_words(row: Row | None) -> str:
    """The median of the bounds, and how many refute."""
    return f"ε ≥ {format_lower(row['median'], 3)}, {row['refuted']} of {row['repetitions']}" if row else "–"


def is_right(row: Row) -> bool:
    """Whether the cause that an audit named is the planted one."""
    return re.search(RIGHT_CAUSES[row["generator"]], row["cause"]) is not None


def read() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text(encoding="utf-8"))) if FILE.exists() else {"audits": [], "by hand": []}


def write(audits: list[Row], hand: list[Row]) -> None:
    kept, made = {"audits": audits, "by hand": hand}, tables(audits, hand)
    new = FILE.with_suffix(".new")
    lines = {key: ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) for key, rows in kept.items()}
    text = "".join(f'"{key}": [\n{lines[key]}\n],\n' for key in kept)
    new.write_text(f'{{\n{text}"tables": {json.dumps(made, indent=1, ensure_ascii=False)}\n}}\n', encoding="utf-8")
    new.replace(FILE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = generators()
    parser.add_argument("--runs", nargs="+", type=int, default=list(RUNS), help="of an audit (50 200 1000)")
    parser.add_argument("--repetitions", type=int, default=5, help="audits of each kind (5)")
    parser.add_argument("--generators", nargs="+", choices=known, help="(all that have a leak)")
    parser.add_argument("--twins", action="store_true", help="the generators that are right")
    parser.add_argument("--by-hand", action="store_true", help="what the planted neighbours show, 20 times each")
    parser.add_argument("--tables", action="store_true", help="only make the tables anew")
    options = parser.parse_args()
    names = options.generators or [name for name, audited in known.items() if bool(audited.cause) != options.twins]
    body = read()
    audits, hand = list[Row](body["audits"]), list[Row](body["by hand"])
    if options.by_hand:
        hand = [by_hand(name, 20) for name, audited in known.items() if audited.cause]
    if options.by_hand or options.tables:
        write(audits, hand)
        return
    made = {(row["generator"], row["runs"], row["seed"]) for row in audits}
    for runs in options.runs:
        for name in names:
            for row in rows_of(name, runs, options.repetitions, made):
                audits.append(row)
                print(name, runs, "refuted:" if row["refuted"] else "not refuted:", row["cause"], flush=True)
                write(audits, hand)


if __name__ == "__main__":
    main()

"""Table 2: seconds of one round of voting, at the size of Yelp; runs `benchmarks/voting.py`.

OMP_NUM_THREADS=2 python docs/reproductions/secret_evolution/voting_time.py [--quick] [--results FOLDER]
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from shared import arguments, runs

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmarks" / "voting.py"
QUICK = [
    "--records",
    "20000",
    "--candidates",
    "200",
    "--dimension",
    "64",
    "--clusters",
    "50",
    "--public-sample",
    "5000",
]


def measured(given: list[str]) -> dict[str, Any]:
    """What the benchmark returns."""
    spec = importlib.util.spec_from_file_location("voting_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    found: dict[str, Any] = benchmark.main(given)
    return found


def table(steps: dict[str, list[float]]) -> dict[str, Any]:
    """Seconds, and how many times longer the votes of every record take."""
    (_, votes_cpu), *_ = steps.values()
    rows = [{"step": name, "wall": wall, "cpu": cpu, "ratio": votes_cpu / cpu} for name, (wall, cpu) in steps.items()]
    columns = [
        {"title": "step", "key": "step"},
        {"title": "seconds by the clock", "key": "wall", "digits": 2},
        {"title": "seconds of processors", "key": "cpu", "digits": 2},
        {"title": "votes of records over it", "key": "ratio", "digits": 1},
    ]
    return {"columns": columns, "rows": rows}


def main() -> int:
    options = arguments("Table 2: seconds of one round of voting.").parse_args()
    found = measured(QUICK if options.quick else [])
    results = runs.Results(options.results / "voting_time.json", found.pop("parameters"))
    peak = found.pop("peak")
    results.add("voting", 0, peak=peak, **{name: list(taken) for name, taken in found.items()})
    results.tables = {
        "voting_time": table({name: list(taken) for name, taken in found.items()}),
        "voting_peak": {
            "columns": [{"title": "largest resident set, GiB", "key": "peak", "digits": 2}],
            "rows": [{"peak": peak}],
        },
    }
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())

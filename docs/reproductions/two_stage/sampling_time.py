"""Table 6: how long sampling takes with columns in one order and in shuffled ones.

    python docs/reproductions/two_stage/sampling_time.py [--seeds 1] [--first 0] [--quick] [--results FOLDER]

As in the paper, one run each. Besides the sampler of the package, which completes rows with restricted tokens after 15
rounds, two others are timed or follow: restricted tokens from the start, and rows that are thrown away and begun again
if they are not complete after 15 rounds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from fine_tuned import FIRST_STAGES, QUICK_TRAINING, TRAINING, described, fine_tuned
from households import QUICK, SIZE, setting, shown, split
from shared import arguments, runs

from dpassay.mechanisms.models.language_model import LanguageModel

EPSILON = 1.0
ROUNDS = 15
ARMS: list[tuple[str, float | None]] = [("DP-Standard", None), *((arm, EPSILON) for arm in FIRST_STAGES)]


def name_of(arm: str, epsilon: float | None, shuffle: bool) -> str:
    return f"{setting(arm, epsilon)}, {'shuffled' if shuffle else 'in order'}"


def tables(results: runs.Results) -> dict[str, Any]:
    """A row an arm: times with and without shuffling, and their ratio."""
    rows = []
    for arm, epsilon in ARMS:
        row: dict[str, Any] = {"arm": arm, "epsilon": shown(epsilon)}
        for key in ("seconds", "complete_at_once", "complete", "restricted_seconds", "begun_again_seconds"):
            for shuffle in (False, True):
                row[f"{key}_{'on' if shuffle else 'off'}"] = results.of(name_of(arm, epsilon, shuffle), key)
        for key in ("seconds", "begun_again_seconds"):
            pairs = zip(row[f"{key}_on"], row[f"{key}_off"], strict=True)
            row[f"{key}_ratio"] = [None if None in pair else pair[0] / pair[1] for pair in pairs]
        rows.append(row)
    titles = {
        "complete_at_once_off": "rows complete at once, in order",
        "complete_at_once_on": "shuffled",
        "complete_off": "after 15 rounds, in order",
        "complete_on": "shuffled",
        "seconds_off": "seconds, in order",
        "seconds_on": "shuffled",
        "seconds_ratio": "ratio",
        "begun_again_seconds_off": "begun again, in order",
        "begun_again_seconds_on": "shuffled",
        "begun_again_seconds_ratio": "ratio",
        "restricted_seconds_on": "restricted only",
    }
    digits = {key: 3 if "complete" in key else 1 for key in titles}
    columns = [{"title": "arm", "key": "arm"}, {"title": "ε", "key": "epsilon"}]
    columns += [{"title": title, "key": key, "digits": digits[key]} for key, title in titles.items()]  # type: ignore[misc]
    return {"sampling": {"columns": columns, "rows": rows}}


def main() -> int:
    parser = arguments("Table 6: sampling time.")
    parser.set_defaults(seeds=1)
    options = parser.parse_args()
    size = (QUICK | {"training": QUICK_TRAINING}) if options.quick else (SIZE | {"training": TRAINING})
    results = runs.Results(options.results / "sampling_time.json", size)
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        private, _ = split(size, seed)
        for arm, epsilon in ARMS:
            for shuffle in (False, True):
                name = name_of(arm, epsilon, shuffle)
                if not results.missing(name, seed):
                    continue
                with tempfile.TemporaryDirectory() as first:
                    tuned = fine_tuned(
                        described(size, arm, epsilon, seed, shuffle=shuffle), model, private, Path(first)
                    )
                _, statistics, seconds = tuned.rows(size["rows"], rounds=ROUNDS)
                _, _, restricted = tuned.rows(size["rows"], rounds=0)
                complete = statistics.complete[-1] / statistics.rows
                results.add(
                    name,
                    seed,
                    seconds=seconds,
                    restricted_seconds=restricted,
                    complete_at_once=statistics.complete[0] / statistics.rows,
                    complete=complete,
                    begun_again_seconds=seconds / complete if complete else None,
                )
    results.tables = tables(results)
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""ε of the audits of other libraries beside ours, on the same scores, and how often each is above the true ε.

    python benchmarks/other_audits.py [--repetitions 2000] [--peer-python NAME=PATH …] [-o FILE.json]

A library is asked in this Python where it is installed, or in the one of a virtual environment of its own:
--peer-python jax_privacy=/path/to/venv/bin/python. Rows of libraries that are not installed say so. Names and packages:
jax_privacy (jax-privacy), privacyguard (privacyguard-platform), privacy_estimates (privacy-estimates),
tensorflow_privacy (pip install --no-deps tensorflow-privacy==0.8.12, then immutabledict, statsmodels and
'scikit-learn<1.6'; no TensorFlow is needed). With all four it takes some ten minutes.

Both mechanisms have ε = 1: randomised response of one bit, and Laplace noise on one bit. "Many runs" are 400 with the
unit and 400 without; "one run" is 60 candidates, each in by its own coin. At β = 5% a bound may be above 1 in 5% of the
repetitions. A method fails where the exact 99.9% interval of its rate lies above 5%. A rate with a star is
that of the same rule in our code, where the library is too slow to be asked 2000 times and both agree on those asked.

FILE.json holds the rows, and the table that `fill_guides.py` writes into `docs/measurements/other-bounds.md`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from other_audit_libraries import BETA, DELTA, LIBRARIES, Audit, answers, remembered
from rich.console import Console
from rich.table import Table

from dpassay.accounting.lattice import gaussian_curve
from dpassay.audits import statistics as ours
from dpassay.audits.statistics.binomial import clopper_pearson

Floats = NDArray[np.float64]

EPSILON, RUNS, CANDIDATES = 1.0, 400, 60

NO_EPSILON = {
    "ML Privacy Meter": "privacy-meter 1.0.1 prints ROC curves and no ε",
    "dp_auditorium": "is in no package of PyPI",
}

NO_STATISTIC = "no statistic of ours, and no bound"

MECHANISMS = {"response": "randomised response", "laplace": "Laplace"}

JUDGED = {"yes": "yes, by ", "no, measured": "fails: ", "did not fail here": "did not fail here: "}
"""What the guide writes before the basis of an answer."""

BASIS = {
    ("jax_privacy", "clopper_pearson, fixed"): "proof",
    ("jax_privacy", "clopper_pearson, split"): "proof",
    ("jax_privacy", "clopper_pearson, default"): "corrects for the frontier's thresholds only, which the scores choose",
    ("jax_privacy", "from_gdp"): "assumes a Gaussian",
    (
        "jax_privacy",
        "one_run, default",
    ): "corrects for the frontier's thresholds only; the scores choose how many are guessed",
    ("jax_privacy", "one_run, fixed"): "the scores choose how many are guessed, at δ > 0",
    ("jax_privacy", "one_run_fdp, fixed"): "assumes a Gaussian",
    ("privacyguard", "eps_cp"): "the best of all thresholds, not corrected for multiple tests",
    ("privacyguard", "fdp"): "assumes a Gaussian",
    ("privacy_estimates", "beta"): "proof, at confidence 1 − 2β: β if the attack is above chance, β if below",
    ("privacy_estimates", "jeffreys"): "credible, not a confidence bound",
    ("privacy_estimates", "joint-beta"): "credible, not a confidence bound",
    (
        "tensorflow_privacy",
        "clopper-pearson, fixed",
    ): "proof, at confidence 1 − 2β: β if the attack is above chance, β if below",
    ("tensorflow_privacy", "clopper-pearson, default"): "the best of all thresholds, not corrected for multiple tests",
    ("tensorflow_privacy", "katz-log, fixed"): "asymptotic",
    ("tensorflow_privacy", "katz-log, default"): "the best of all thresholds, not corrected for multiple tests",
    ("dpassay", "clopper_pearson, fixed"): "proof",
    ("dpassay", "scores, split"): "proof",
    ("dpassay", "scores, band"): "proof",
    ("dpassay", "mu as ε"): "assumes a Gaussian",
    ("dpassay", "jeffreys"): "credible, not a confidence bound",
    ("dpassay", "katz_log"): "asymptotic",
    ("dpassay", "one_run, tight"): "proof",
    ("dpassay", "one_run, adaptive"): "proof",
    ("dpassay", "one_run_f_dp, gdp"): "assumes a Gaussian",
    ("dpassay", "best of all thresholds"): NO_STATISTIC,
}
"""What stands behind an answer, from reading the installed source."""

COUNTERPART = {
    "clopper_pearson, fixed": "clopper_pearson, fixed",
    "clopper_pearson, default": "scores, split",
    "clopper_pearson, split": "scores, split",
    "from_gdp": "mu as ε",
    "one_run, default": "one_run, tight",
    "one_run, fixed": "one_run, tight",
    "one_run_fdp, fixed": "one_run_f_dp, gdp",
    "eps_cp": "scores, split",
    "fdp": "one_run_f_dp, gdp",
    "beta": "clopper_pearson, fixed",
    "jeffreys": "jeffreys",
    "joint-beta": "jeffreys",
    "clopper-pearson, fixed": "clopper_pearson, fixed",
    "clopper-pearson, default": "scores, split",
    "katz-log, fixed": "katz_log",
    "katz-log, default": "scores, split",
}
"""Our statistic that answers the same question."""

COPIES = {"eps_cp": "best of all thresholds"}
"""A rule of a slow library in our code."""


def draw(repetitions: int, seed: int) -> dict[str, NDArray[Any]]:
    """Scores and members of each game and mechanism."""
    generator, q, data = np.random.default_rng(seed), np.e / (1 + np.e), {}
    for game, size in (("many", 2 * RUNS), ("one_run", CANDIDATES)):
        coins = generator.integers(0, 2, (repetitions, size)) == 1
        member = coins if game == "one_run" else np.tile(np.arange(size) < RUNS, (repetitions, 1))
        response = ((generator.random(member.shape) < q) == member).astype(np.float64)
        noisy = member + generator.laplace(0, 1, member.shape)
        for mechanism, scores in (("response", response), ("laplace", noisy)):
            data[f"{game}-{mechanism} scores"], data[f"{game}-{mechanism} member"] = scores, member
    return data


def our_audits() -> dict[str, Audit]:
    """Ours, from the scores with and without the unit; and what is no statistic of ours, for comparison."""
    level: dict[str, Any] = {"confidence": 1 - BETA}

    def two(epsilon: Callable[..., float]) -> Audit:
        def audit(inside: Floats, outside: Floats) -> float:
            tp, fp = int((inside >= 0.5).sum()), int((outside >= 0.5).sum())
            return epsilon(tp, inside.size - tp, fp, outside.size - fp)

        return remembered(audit)

    def fixed(epsilon: Callable[..., float]) -> Audit:
        def audit(inside: Floats, outside: Floats) -> float:
            m, right = inside.size + outside.size, int((inside >= 0.5).sum() + (outside < 0.5).sum())
            return epsilon(m, m, right, delta=DELTA, **level)

        return remembered(audit)

    def scores(rule: ours.Split | ours.Band) -> Audit:
        return lambda a, b: ours.epsilon_from_scores(a, b, delta=0.0, threshold=rule, **level).value

    def of_mu(*counts: int) -> float:
        mu = ours.mu_clopper_pearson(*counts, **level).value
        return gaussian_curve.epsilon(mu, DELTA).lower if mu else 0.0

    return {
        "clopper_pearson, fixed": two(lambda *c: ours.epsilon_clopper_pearson(*c, delta=0.0, **level).value),
        "scores, split": scores(ours.Split()),
        "scores, band": scores(ours.Band()),
        "one_run, tight": fixed(lambda *c, **k: ours.epsilon_one_run(*c, rule="tight", **k).value),
        "one_run, adaptive": fixed(lambda *c, **k: ours.epsilon_one_run(*c, rule="adaptive", **k).value),
        "one_run_f_dp, gdp": fixed(lambda *c, **k: ours.epsilon_one_run_f_dp(*c, family="gdp", **k).value),
        "mu as ε": two(of_mu),
        "jeffreys": two(lambda *c: ours.epsilon_jeffreys(*c, delta=0.0, **level).value),
        "katz_log": two(lambda *c: ours.epsilon_katz_log(*c, delta=0.0, **level).value),
        "best of all thresholds": best_of_all,
    }


def best_of_all(inside: Floats, outside: Floats) -> float:
    """Clopper and Pearson at every threshold, not corrected for multiple tests: no bound."""
    thresholds = np.unique(np.concatenate([inside, outside]))
    tp, fp = (scores.size - np.searchsorted(np.sort(scores), thresholds) for scores in (inside, outside))
    counts = (tp, inside.size - tp, fp, outside.size - fp)
    return float(ours.epsilons_clopper_pearson(*counts, delta=0.0, confidence=1 - BETA).max())


def answers_of(library: str, python: str, path: Path) -> dict[str, Any]:
    """Asks a library in the Python where it is installed."""
    script = Path(__file__).with_name("other_audit_libraries.py")
    done = subprocess.run([python, str(script), library, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"missing": f"it failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}"}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def rows_of(library: str, answer: dict[str, Any], same: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """One row a method: medians, false alarms with exact intervals, ours on the same scores, and the judgement."""
    rows = []
    for method, games in answer["found"].items():
        row: dict[str, Any] = {"library": library, "version": answer["version"], "method": method}
        counterpart, refuted = COUNTERPART.get(method), False
        for game, values in games.items():
            copy = same.get(COPIES.get(method, ""), {}).get(game, [])
            stands_in = len(values) < len(copy) and np.allclose(values, copy[: len(values)], rtol=0, atol=1e-9)
            counted = copy if stands_in else values
            alarms = int((np.array(counted) > EPSILON * (1 + 1e-9)).sum())
            interval, strict = (clopper_pearson(alarms, len(counted), confidence=c) for c in (0.95, 0.999))
            refuted |= strict.lower > BETA
            row[game.split("-")[1]] = {
                "asked": len(values),
                "counted": len(counted),
                "epsilon": float(np.median(values)),
                "false_alarms": alarms / len(counted),
                "interval": [interval.lower, interval.upper],
                "ours": float(np.median(same[counterpart][game][: len(values)])) if counterpart and same else None,
            }
        basis = BASIS[library, method]
        judgement = "no, measured" if refuted else "yes" if basis.startswith("proof") else "did not fail here"
        rows.append({**row, "counterpart": counterpart, "basis": basis, "valid": judgement})
    return rows


def table_of(rows: list[dict[str, Any]], repetitions: int) -> Table:
    table = Table(title=f"ε = 1, β = 5%, {repetitions} repetitions; medians, and false alarms with exact 95% intervals")
    for column in ("library", "method", "response: ε", "false alarms", "Laplace: ε", "false alarms"):
        table.add_column(column)
    for column in ("ours, same scores", "valid", "basis"):
        table.add_column(column)
    for row in rows:
        cells = [f"{row['library']} {row['version']}", row["method"]]
        for mechanism in ("response", "laplace"):
            if mechanism not in row:
                cells += ["–", "–"]
                continue
            result = row[mechanism]
            low, high = result["interval"]
            star = "*" if result["counted"] > result["asked"] else ""
            rate = f"{result['false_alarms']:.4f}{star} ({low:.4f}–{high:.4f})"
            cells += [f"{result['epsilon']:.3f}", rate if result["counted"] > 1 else "one call only"]
        same = [
            f"{row[name]['ours']:.3f}" for name in ("response", "laplace") if row.get(name, {}).get("ours") is not None
        ]
        cells += [f"{row['counterpart']}: {', '.join(same)}" if same else "", row["valid"], row["basis"]]
        table.add_row(*cells)
    return table


def in_the_guide(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of the guide: its columns, and a row for each method."""
    columns = [{"title": title, "key": title} for title in ("library", "method")]
    columns += [{"title": f"{words}: ε, false alarms", "key": key} for key, words in MECHANISMS.items()]
    columns += [{"title": "a bound?", "key": "bound"}]
    shown = []
    for row in rows:
        if row["basis"] == NO_STATISTIC:
            continue
        library = row["library"] if row["library"] == "dpassay" else f"{row['library']} {row['version']}"
        cells = {name: cell_of(row.get(name)) for name in MECHANISMS}
        shown.append(
            {"library": library, "method": row["method"], **cells, "bound": JUDGED[row["valid"]] + row["basis"]}
        )
    return {"columns": columns, "rows": shown}


def cell_of(result: dict[str, Any] | None) -> str:
    """The median ε and the rate of false alarms with its interval, for the guide."""
    if result is None:
        return "–"
    epsilon = f"{result['epsilon']:.2f}"
    if result["counted"] == 1:
        return f"{epsilon}, asked once"
    low, high = (100 * end for end in result["interval"])
    star = "*" if result["counted"] > result["asked"] else ""
    return f"{epsilon}, {100 * result['false_alarms']:.1f}%{star} ({low:.1f}–{high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000, help="audits of each kind (2000)")
    parser.add_argument("--seed", type=int, default=0, help="of the scores (0)")
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH", help="where a library is")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where rows are kept, as JSON")
    options = parser.parse_args()
    pythons = dict(pair.partition("=")[::2] for pair in options.peer_python)
    if unknown := sorted(set(pythons) - set(LIBRARIES)):
        parser.error(f"--peer-python knows {', '.join(LIBRARIES)}, not {', '.join(unknown)}")
    data = draw(options.repetitions, options.seed)
    answer: dict[str, Any] = {"version": version("dpassay"), "found": answers(our_audits(), data)}
    rows, missing = rows_of("dpassay", answer, {}), dict(NO_EPSILON)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.npz"
        np.savez(path, allow_pickle=False, **data)
        for library in LIBRARIES:
            theirs = answers_of(library, pythons.get(library, sys.executable), path)
            if "missing" in theirs:
                missing[library] = theirs["missing"]
            else:
                rows += rows_of(library, theirs, answer["found"])
    if options.output:
        body = {"repetitions": options.repetitions, "rows": rows, "tables": {"bounds": in_the_guide(rows)}}
        options.output.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    Console(width=220).print(table_of(rows, options.repetitions))
    for name, reason in missing.items():
        print(f"{name}: {reason}")


if __name__ == "__main__":
    main()

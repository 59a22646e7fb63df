"""The pages that audits write, made as commands make them, and results of audits that have no page of their own."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import yaml

from dpassay import audit
from dpassay.auditing.canaries.files import read_plan
from dpassay.auditing.membership.design import SIGNAL_ATTACKS, TEXT_ATTACKS
from dpassay.audits.result import AuditResult
from dpassay.mechanisms.models.language_model import LanguageModel


def mechanism(folder: Path) -> Path:
    """A function whose sensitivity is larger than declared, and whose scale is an argument of the draw."""
    manifest = {
        "name": "marginals",
        "library": "numpy",
        "call": "little_library:Marginals.fit",
        "object": {"scale": 2.0},
        "adjacency": "add_remove",
        "data": [[0, 1], [1, 0], [0, 2]],
        "neighbors": [[[0, 1], [1, 0]]],
        "noise": [
            {
                "draw": "little_library:noise_of",
                "query": "little_library:Table.counts",
                "law": "gaussian",
                "scale_argument": "scale",
                "sensitivity": math.sqrt(1 / 2**2 + 1 / 4**2) / 2,
            }
        ],
    }
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    audit.mechanism(folder / "manifest.yaml", runs=20, output=folder)
    return folder / "report.html"


def many_runs(folder: Path) -> Path:
    """A threshold that a probe finds, and further runs that look for its column."""
    people = [
        {"age": 20 + 7 * index % 40, "city": ["Ulm", "Bern"][index % 2], "note": f"a b c d {'ef'[index % 2]}"}
        for index in range(30)
    ]
    like = write_csv(folder / "people.csv", people)
    own = folder / "runs"
    audit.runs(own, like=like, epsilon=1.0, runs=50, neighbors=("ordinary", "threshold"), title="A title of ours")
    audit.make_runs(own, function="toy_functions:often", explain=True)
    assert audit.bound_runs(own).refuted
    audit.report_runs(own)
    return own / "report.html"


def canaries(folder: Path) -> Path:
    """Keys that are all printed."""
    own = folder / "canaries"
    audit.canaries(own, canaries=60, epsilon=1.0)
    texts = [canary.text for canary in read_plan(own).plan.planted]
    return scored(own, write_texts(folder / "synthetic.jsonl", ["another text", *texts]))


def echo_by_model(folder: Path) -> Path:
    """Echoes that a language model scores, which is fine-tuned on texts with none of them."""
    own = folder / "canaries"
    like = write_texts(folder / "like.jsonl", [f"The patient was well on day {day} and slept." for day in range(200)])
    audit.canaries(own, kind="echo", score="model", like=like, canaries=10, guesses=5, epsilon=1.0)
    return scored(own, like)


def scored(own: Path, synthetic: Path) -> Path:
    audit.score_canaries(own, synthetic)
    audit.bound_canaries(own)
    audit.report_canaries(own)
    return own / "report.html"


def several(folder: Path) -> Path:
    """Canaries, a table with linkability, and membership by two attacks, on one page."""
    canaries(folder)
    table(folder)
    membership_of_text(folder)
    files = [folder / name for name in ("canaries", "table.json", "membership.json")]
    audit.summary(files, output=folder / "summary")
    return folder / "summary" / "summary.html"


PAGES: Mapping[str, Callable[[Path], Path]] = {
    "mechanism": mechanism,
    "runs report": many_runs,
    "report": canaries,
    "report: echoes that a model scores": echo_by_model,
    "summary": several,
}
"""Makes a page in an empty folder, by the subcommand of `dpassay audit` that writes it, and by what it shows."""


def table(folder: Path) -> tuple[AuditResult, ...]:
    """Half of a table that is copied from its source, with all attacks on tables."""
    people = [
        {"age": 20 + index % 61, "city": ["Ulm", "Bern", "Graz"][index % 3], "spent": round(index * 1.37 % 97, 2)}
        for index in range(120)
    ]
    source, holdout = (
        write_csv(folder / f"{name}.csv", part) for name, part in (("seen", people[:60]), ("un", people[60:]))
    )
    made = write_csv(folder / "made.csv", people[30:90])
    found = audit.table(made, source=source, holdout=holdout, secret=["city", "spent"], link=["age"], coins=True)
    (folder / "table.json").write_text(json.dumps(found.to_json()))
    return found.audits


def text(folder: Path) -> tuple[AuditResult, ...]:
    """Texts that are copied from their source, one with an address."""
    notes = [
        f"note {index} of a very long day in {index * index} words: ask {index}@example.org" for index in range(80)
    ]
    files = {"seen": notes[:40], "un": notes[40:], "made": notes[:20]}
    seen, un, made = (write_texts(folder / f"{name}.jsonl", texts) for name, texts in files.items())
    return audit.text(made, source=seen, holdout=un, coins=True).audits


def secrets(folder: Path) -> tuple[AuditResult, ...]:
    """Guesses of a secret."""
    found = audit.secrets(0.01, 0.1, occurrences=2, sampling_probability=0.5)
    return (found.audit,)


def membership_of_signals(folder: Path) -> tuple[AuditResult, ...]:
    """Signals of a model that remembers its members, and of reference models, by all attacks."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for index in range(250):
        candidate, difficulty = index < 200, rng.normal(scale=3)
        inside = rng.random(9) < 0.5 * candidate  # the target and eight reference models
        signals = difficulty + 4 * inside + rng.normal(size=9)
        rows.append({"target": signals[0], "included": int(inside[0]) if candidate else ""})
        rows[-1] |= {f"ref_{model}": signals[model] for model in range(1, 9)}
        rows[-1] |= {f"ref_in_{model}": int(inside[model]) for model in range(1, 9)}
    file = write_csv(folder / "signals.csv", rows)
    return (audit.membership(file, coins=True, epsilon=1.0, attacks=SIGNAL_ATTACKS, guesses=(50, 100)).audit,)


def membership_of_a_model(folder: Path) -> tuple[AuditResult, ...]:
    """A model that saw no candidate, without reference models and without coins."""
    rows = [{"text": f"Note {index} of a day.", "included": index % 2} for index in range(40)]
    with mock.patch.object(LanguageModel, "check_rows"):  # takes most of the time of a load
        return (audit.membership(write_rows(folder / "candidates.jsonl", rows), model="builtin").audit,)


def membership_of_text(folder: Path) -> tuple[AuditResult, ...]:
    """Texts that hold half of the members; the result is also written."""
    inside = np.random.default_rng(0).random(100) < 0.5
    rows: list[dict[str, Any]] = [
        {"text": f"Note {index} of {index * index} words.", "included": int(inside[index])} for index in range(100)
    ]
    candidates = write_rows(folder / "candidates.jsonl", rows)
    made = write_texts(folder / "made.jsonl", [row["text"] for row in rows[:50] if row["included"]])
    found = audit.membership(
        candidates,
        synthetic=made,
        coins=True,
        epsilon=1.0,
        attacks=TEXT_ATTACKS,
        output=folder / "membership.json",
    )
    return (found.audit,)


RESULTS: Mapping[str, Callable[[Path], tuple[AuditResult, ...]]] = {
    "table": table,
    "text": text,
    "secrets": secrets,
    "membership scores": membership_of_signals,
    "membership model": membership_of_a_model,
    "membership text": membership_of_text,
}
"""The results of audits that have no page of their own, and are shown in the report of a claim, by the subcommand."""


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    return path


def write_texts(path: Path, texts: list[str]) -> Path:
    return write_rows(path, [{"text": text} for text in texts])


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path

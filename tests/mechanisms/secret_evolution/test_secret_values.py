"""Secret-protected evolution tells of values by its noisy vectors only: whole runs with other values in their places.

Every value of a secret is put in everywhere, in records and in the list that names it, and the run is done again with a
source of noise that gives out the same noisy vectors. All else that may leave, or that anybody is told, must then be
the same to the last byte; and the vectors must be what they are whatever the value is, where the records that hold it
are not drawn. The builtin embedder is the real one, fitted in each run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from little_evolution import ToyWriter, Watched, tree_records
from numpy.typing import ArrayLike, NDArray

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.records import Record, with_content_ids
from dpassay.mechanisms.primitives.randomness import Source
from dpassay.mechanisms.secret_evolution.detection import ListedSecrets, PatternSecrets
from dpassay.mechanisms.secret_evolution.generator import SecretEvolution

LABELS = ("tree", "wood")
ByLabel = dict[str | None, NDArray[np.bool_]]

FIRST: dict[str, str] = {"ann": "Ann Pine", "bob": "Bob Fir", "cid": "Cid Ash", "one": "zx31415", "two": "zx27182"}
OTHERS: list[dict[str, str]] = [
    {"ann": "Zoë"},
    {"ann": "oak oak pine"},  # words of public records
    {"ann": "A much longer name (of nobody), 1234567890"},
    {"cid": "李"},
    {"bob": "aaron", "cid": "AAron"},
    {"one": "zx99999", "two": "zx00001"},
]


def records_with(values: Mapping[str, str]) -> list[Record]:
    """40 records in two labels, 14 of which hold one secret or several. The embedder knows n-grams of public ones."""
    public = tree_records(26, labels=LABELS)
    public[:3] = [dataclasses.replace(x, text=f"{x.text} 31415 27182 99999 Pine Fir Ash") for x in public[:3]]
    held = [
        "ann", "ann", "ann bob", "bob", "cid", "cid one", "one", "one", "one two", "two", "ann two", "cid cid", "bob",
        "ann bob cid one two",
    ]  # fmt: skip
    texts = [
        f"{words.text.split()[0]} {' and '.join(values[name] for name in names.split())} elm"
        for names, words in zip(held, tree_records(len(held), seed=1), strict=True)
    ]
    private = with_content_ids([(text, LABELS[index % 2], None) for index, text in enumerate(texts)])
    return [*public[:9], *private[:7], *public[9:20], *private[7:], *public[20:]]


def mechanism(folder: Path, values: Mapping[str, str], **changes: Any) -> SecretEvolution:
    """With a list that is sorted by the values, and in which one secret has a budget of its own."""
    rows = sorted((values[name], "0.3" if name == "bob" else "") for name in ("ann", "bob", "cid"))
    lines = ["secret,r", *(f'"{value}",{r}' for value, r in rows)]
    (folder / "secrets.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    numbers: dict[str, Any] = {"rounds": 2, "synthetic": 3, "variations": 2, "clusters": 3, "labels": LABELS}
    sources = (ListedSecrets(folder / "secrets.csv"), PatternSecrets(r"\bzx\d{5}\b"))
    return SecretEvolution(**{**numbers, "secrets": sources, "p": 1e-3, "r": 0.1, **changes})


class Asked(Watched):
    """Draws every record that may be drawn but those at some places; remembers the probabilities.

    Gives out what another run gave out, if that is given.
    """

    def __init__(
        self, outcomes: list[NDArray[np.float64]] | None, hidden: Mapping[str | None, NDArray[np.bool_]]
    ) -> None:
        super().__init__(1)
        self.probabilities: list[list[float]] = []
        self._outcomes, self._hidden = outcomes, list(hidden.values())

    def bernoulli(self, probabilities: ArrayLike) -> NDArray[np.bool_]:
        hidden = self._hidden[len(self.probabilities) % len(self._hidden)]
        self.probabilities.append(np.asarray(probabilities).tolist())
        return (np.asarray(probabilities) > 0) & ~hidden

    def _noisy(self, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
        return drawn if self._outcomes is None else self._outcomes[len(self.noisy)]


def written(folder: Path, chosen: SecretEvolution, records: list[Record], source: Source) -> tuple[Any, Any]:
    """A run in a new folder: its result, and what anybody may be told of it."""
    folder.mkdir()
    told: list[tuple[int, int]] = []
    indices = chosen.incidence(records)
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        run = ledger.begin(
            "run",
            plan=chosen.plan(indices),
            adjacency=chosen.adjacency,
            unit=chosen.unit,
            about={"noise": source.name, "secrets": indices.fingerprint},
        )
        result = chosen.generate(
            records,
            ToyWriter(),
            run,
            journal=folder / "journal.jsonl",
            source=source,
            progress=lambda *counts: told.append(counts),
        )
        run.finish()
    noise = result.noise
    return result, {
        "texts": result.texts,
        "releases": [
            {label: (noisy.centres.tolist(), noisy.sizes.tolist()) for label, noisy in release.items()}
            for release in result.releases
        ],
        "found": result.detected,
        "noise": (noise.sigma, noise.probabilities.tolist(), noise.rounds, noise.event(), noise.published_event()),
        "places": (indices.fingerprint, indices.budgets, indices.group.tolist(), indices.matrix.toarray().tolist()),
        "plans": (chosen.plan(indices), chosen.published_plan(indices)),
        "journal": (folder / "journal.jsonl").read_bytes(),
        "ledger": entries(folder / "ledger.sqlite"),
        "progress": told,
        "shown": (repr(chosen), str(chosen)),
    }


def entries(path: Path) -> list[tuple[str, Any]]:
    """All that a ledger holds but its salt and the digest of what was read, which never leave it."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = [(kind, json.loads(body)) for kind, body in connection.execute("SELECT kind, body FROM entries")]
    hidden = [body for kind, body in rows if kind == "open" or (kind == "commit" and body["key"] == "inputs")]
    assert len(hidden) == 2
    for body, name in zip(hidden, ("salt", "value"), strict=True):
        assert len(body.pop(name)) == 64
    return rows


def errors(folder: Path, chosen: SecretEvolution, records: list[Record]) -> list[str]:
    """What is said of parameters that do not fit these records, and of a ledger that was begun with others."""
    results = []
    for changes in ({"clusters": 99}, {"labels": LABELS[:1]}, {"expected_sample": 1e6}):
        with pytest.raises(ValueError, match=r"^") as error:
            dataclasses.replace(chosen, **changes).check(records, ToyWriter())
        results.append(str(error.value))
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        for other in (records[:-1], [*records[:-1], dataclasses.replace(records[-1], text="oak")]):
            with pytest.raises(ValueError, match=r"^") as error:
                chosen.generate(other, ToyWriter(), ledger.run("run"), journal=folder / "j", source=Watched(1))
            results.append(str(error.value))
    return results


def holders(chosen: SecretEvolution, records: list[Record], values: list[str]) -> dict[str | None, NDArray[np.bool_]]:
    """Which of the private records of each label hold one of the values."""
    private = chosen.incidence(records).private
    results: dict[str | None, list[bool]] = {label: [] for label in chosen.labels or (None,)}
    for record, secret in zip(records, private, strict=True):
        if secret:
            own = results[record.label if chosen.labels else None]
            own.append(any(value in record.text for value in values))
    return {label: np.array(those) for label, those in results.items()}


@pytest.mark.grid
@pytest.mark.parametrize(
    ("changes", "others"),
    [
        ({}, OTHERS[:2]),
        pytest.param({}, OTHERS[2:], marks=pytest.mark.slow),
        ({"releases": "once", "lookahead": 1}, OTHERS[1:2]),
        ({"expected_sample": 2.5, "radius": 0.6, "labels": ()}, OTHERS[2:3]),
    ],
    ids=["every round", "every round, other values", "once", "pooled"],
)
def test_noisy_vectors_alone_depend_on_a_value(
    changes: dict[str, Any], others: list[dict[str, str]], tmp_path: Path
) -> None:
    records, chosen = records_with(FIRST), mechanism(tmp_path, FIRST, **changes)
    everybody = holders(chosen, records, [])
    source = Asked(None, everybody)
    result, public = written(tmp_path / "first", chosen, records, source)
    messages = errors(tmp_path / "first", chosen, records)
    assert len(set(result.noise.probabilities)) > 2
    for number, other in enumerate(others):
        chosen, before = mechanism(tmp_path, FIRST, **changes), [FIRST[name] for name in other]
        without = Asked(source.noisy, holders(chosen, records, before))
        written(tmp_path / f"{number} before", chosen, records, without)

        values = {**FIRST, **other}
        chosen, changed = mechanism(tmp_path, values, **changes), records_with(values)
        again = Asked(source.noisy, everybody)
        assert written(tmp_path / f"{number} again", chosen, changed, again)[1] == public
        assert errors(tmp_path / f"{number} again", chosen, changed) == messages
        reference = Asked(source.noisy, holders(chosen, changed, list(other.values())))
        written(tmp_path / f"{number} after", chosen, changed, reference)
        assert again.probabilities == reference.probabilities == source.probabilities
        assert again.scales == reference.scales == source.scales
        assert all(map(np.array_equal, without.exact, reference.exact))
        assert not all(map(np.array_equal, source.exact, again.exact))

"""Table evolution: its event against the analytic Gaussian, neighbours by brute force, whole runs, resumed runs, bad
input."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from little_inference import killed_at
from little_tables import PEOPLE, people, people_table
from scipy.stats import norm

from dpassay.accounting.accountants.gdp import GaussianDP
from dpassay.accounting.accountants.pld import PrivacyLoss
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.base.arrays import Floats, Integers
from dpassay.data.table_schema import MISSING, Row, Schema
from dpassay.data.tables import Table
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source
from dpassay.mechanisms.table_evolution import generator
from dpassay.mechanisms.table_evolution.generator import TableEvolution, TableEvolutionResult
from dpassay.mechanisms.table_evolution.votes import VotesGrid
from dpassay.utility.tables import compare_tables

SMALL: dict[str, Any] = {"noise_multiplier": 0.7, "records": 40, "rows": 30, "generations": 5}


def begin(mechanism: TableEvolution, ledger: Ledger, noise: str) -> Run:
    return ledger.begin(
        "run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={"noise": noise}
    )


def write(
    mechanism: TableEvolution, table: Table, folder: Path, source: Source, *, name: str = "ledger"
) -> TableEvolutionResult:
    with Ledger.open(folder / f"{name}.sqlite") as ledger:
        run = begin(mechanism, ledger, source.name)
        result = mechanism.generate(table, run, source=source)
        run.finish()
    return result


# The event


@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("accountant", [GaussianDP, RenyiAccountant, PrivacyLoss])
def test_the_plan_costs_the_analytic_gaussian(accountant: Any, adjacency: Adjacency, rounds: int) -> None:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), μ = Δ/σ, Δ = 1 or √2; no accountant gives less, the best no more."""
    chosen = TableEvolution(**{**SMALL, "noise_multiplier": 2.3, "rounds": rounds}, adjacency=adjacency)
    mu = (math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1) / 2.3
    epsilon = 0.9
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    result = accountant(adjacency).compose(chosen.plan()).delta(epsilon).value
    assert result >= delta * (1 - 1e-9)
    if accountant is not RenyiAccountant:
        assert result <= delta * 1.01


@pytest.mark.parametrize("rounds", [1, 3])
def test_few_rows_beside_the_noise_vote_about_columns(rounds: int) -> None:
    """Shares are 1/σ²; whatever the signal, they add up to that of the run."""
    shares = {}
    for noise in (1e-3, 1.0, 10.0, 1e6):
        chosen = TableEvolution(noise_multiplier=noise, records=1000, rounds=rounds)
        shares[noise] = [(noise / item) ** 2 for item in chosen.noise_multipliers()]
        assert sum(shares[noise]) == pytest.approx(1, rel=1e-12)
        assert min(shares[noise]) > 0
    assert shares[1e-3] == pytest.approx(shares[1.0], rel=1e-9)
    assert shares[1e6][rounds - 1] > 0.98
    assert shares[1.0][rounds - 1] < shares[10.0][rounds - 1] < shares[1e6][rounds - 1] < 1


def test_without_noise_nothing_is_claimed() -> None:
    control = TableEvolution(**{**SMALL, "noise_multiplier": 0.0})
    assert not control.releasable
    assert GaussianDP(Adjacency.ADD_REMOVE).compose(control.plan()).delta(100.0).value == 1
    assert TableEvolution(**SMALL).releasable


# Neighbours


class Scripted:
    """In place of `noisy_votes`: keeps exact votes and grids, and gives out what was given out before, if anything."""

    def __init__(self, outcomes: Sequence[Floats] = (), seed: int = 0) -> None:
        self.exact: list[Integers] = []
        self.grids: list[VotesGrid] = []
        self.noisy: list[Floats] = []
        self._outcomes, self._rng = list(outcomes), np.random.default_rng(seed)

    def __call__(self, exact: Integers, grid: VotesGrid, source: Source) -> Floats:
        self.exact.append(exact)
        self.grids.append(grid)
        drawn = exact + self._rng.normal(scale=grid.deviation, size=exact.size)
        self.noisy.append(self._outcomes[len(self.noisy)] if self._outcomes else drawn)
        return self.noisy[-1]


def neighbours(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """Every removal, and additions and exchanges for rows of extreme and of empty cells."""
    others: list[Row] = [("m", MISSING, "120.0", MISSING, "2021-12-31"), ("f", "0", "-5.0", "a", "2020-01-01")]
    results = [("add_remove", [*rows, other]) for other in others]
    for index in range(len(rows)):
        rest = rows[:index] + rows[index + 1 :]
        results.append(("add_remove", rest))
        results += [("replace_one", [*rest, other]) for other in others]
    return results


def test_neighbours_move_the_votes_as_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every neighbour of a small table, through the run itself, with noise that gives the same noisy votes.

    What is released is then the same, so candidates, views and synthetic rows are. So the whole run tells neighbours
    apart as one draw of N(h, I) and one of N(h′, I) do, h and h′ the exact votes of all views and rounds over the
    deviations of their noise. Their squared distance, in exact fractions, is at most 1/σ² for a row more or less, 2/σ²
    for another row, and for some neighbours nearly that.
    """
    chosen, rows = TableEvolution(**SMALL), people(8)

    def run(rows: list[Row], script: Scripted, name: str) -> TableEvolutionResult:
        monkeypatch.setattr(generator, "noisy_votes", script)
        table = Table(PEOPLE, rows, [str(index) for index in range(len(rows))])
        return write(chosen, table, tmp_path, Recorded(1), name=name)

    first = Scripted()
    result = run(rows, first, "first")
    assert len(first.exact) >= 3 + 5 + 2 * 10  # three wide columns or more, five, and twice all pairs
    assert all(votes.sum() == len(rows) for votes in first.exact)
    limit = 1 / Fraction(chosen.noise_multiplier) ** 2
    farthest = {"add_remove": Fraction(0), "replace_one": Fraction(0)}
    for number, (relation, other) in enumerate(neighbours(rows)):
        script = Scripted(first.noisy)
        again = run(other, script, str(number))
        assert again.rows == result.rows
        assert script.grids == first.grids
        moved = Fraction(0)
        for exact, theirs, grid in zip(first.exact, script.exact, first.grids, strict=True):
            squares = int(np.square(exact - theirs).sum())
            moved += squares * Fraction(grid.units, 2 ** (grid.bits or 0)) ** 2
        farthest[relation] = max(farthest[relation], moved)
    for relation, times in (("add_remove", 1), ("replace_one", 2)):
        assert farthest[relation] <= times * limit * (1 + Fraction(1, 10**14))  # rounds share σ in floating point
        event = dataclasses.replace(chosen, adjacency=Adjacency(relation)).plan()
        charged = GaussianDP(relation).compose(event).mu().value
        assert charged >= math.sqrt(farthest[relation]) * (1 - 1e-14)
    assert farthest["add_remove"] >= limit * (1 - Fraction(1, 10**5))
    assert farthest["replace_one"] >= limit


# Runs


VARIANTS: list[dict[str, Any]] = [
    {},
    {"adjacency": Adjacency.REPLACE_ONE},
    {"rounds": 1},
    {"rounds": 5, "levels": 2},
    {"noise_multiplier": 0.0},
    {"rows": None},
    {"records": 4000},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_run_charges_its_plan_and_replays(changes: dict[str, Any], tmp_path: Path) -> None:
    chosen, table = TableEvolution(**{**SMALL, **changes}), people_table(40)
    result = write(chosen, table, tmp_path, OS_ENTROPY)
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event() == chosen.plan()
        ledger.verify()
    assert len(result.rows) == chosen.count
    assert len(result.rounds) == chosen.rounds + 2
    for row in result.rows:
        assert PEOPLE.row(dict(zip(PEOPLE.names, PEOPLE.cells(row), strict=True))) == row
    again = write(chosen, table, tmp_path, OS_ENTROPY)
    assert again.rows == result.rows


class Watching(Recorded):
    """Whenever noise is drawn, exactly one round is on the disk as charged and not as committed."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(1)
        self.ledger, self.draws = ledger, 0

    def rounded_normals(self, size: int, bits: int) -> Integers:
        with contextlib.closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT kind, body FROM entries").fetchall()
        keys = {kind: [json.loads(body)["key"] for name, body in rows if name == kind] for kind in ("charge", "commit")}
        assert [key.partition("/")[0] for key in set(keys["charge"]) - set(keys["commit"])] == ["votes"]
        self.draws += 1
        return super().rounded_normals(size, bits)


def test_votes_are_charged_before_they_get_noise(tmp_path: Path) -> None:
    source = Watching(tmp_path / "ledger.sqlite")
    write(TableEvolution(**SMALL), people_table(40), tmp_path, source)
    assert source.draws >= 3 + 5 + 2 * 10


@pytest.mark.grid
@pytest.mark.parametrize("stop_at", range(1, 13))
def test_an_interrupted_run_goes_on_where_it_was(stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted before or after its n-th write; committed votes stand, and the whole run charges exactly its plan."""
    chosen, table = TableEvolution(**SMALL), people_table(40)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", killed_at(stop_at))
        with pytest.raises(KeyboardInterrupt):
            write(chosen, table, tmp_path, Recorded(1))
    kept = committed(tmp_path)
    result = write(chosen, table, tmp_path, Recorded(2))
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event() == chosen.plan()
    assert committed(tmp_path)[: len(kept)] == kept
    assert write(chosen, table, tmp_path, Recorded(3)).rows == result.rows


def committed(folder: Path) -> list[Any]:
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        run = ledger.run("run")
        return [run.outcome(f"votes/{step}").value for step in range(run.last_committed("votes"))]  # type: ignore[union-attr]


def test_a_run_goes_on_with_the_same_inputs_only(tmp_path: Path) -> None:
    chosen, table = TableEvolution(**SMALL), people_table(40)
    write(chosen, table, tmp_path, Recorded(1))
    fewer = Table(PEOPLE, table.rows[1:], table.ids[1:])
    renamed = Table(PEOPLE, table.rows, [*table.ids[1:], "new"])
    for mechanism, other in (
        (chosen, fewer),
        (chosen, renamed),
        (dataclasses.replace(chosen, levels=7), table),
        (dataclasses.replace(chosen, seed=1), table),
    ):
        with pytest.raises(RunMismatchError, match="other records, another schema or parameters"):
            write(mechanism, other, tmp_path, Recorded(1))
    with pytest.raises(ValueError, match="began with another plan"):
        write(dataclasses.replace(chosen, rounds=2), table, tmp_path, Recorded(1))


def test_votes_for_other_candidates_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose floating-point numbers lead to other candidates."""
    chosen, table = TableEvolution(**SMALL), people_table(40)
    write(chosen, table, tmp_path, Recorded(1))
    monkeypatch.setattr("dpassay.mechanisms.table_evolution.candidates.most_first_cells", lambda *_: 5)
    with pytest.raises(RunMismatchError, match="votes are for other candidates"):
        write(chosen, table, tmp_path, Recorded(1))


class Rival(Recorded):
    """Runs another process of the same run from start to end, when it is asked for its n-th noise."""

    def __init__(self, at: int, other: Callable[[], TableEvolutionResult]) -> None:
        super().__init__(1)
        self._at, self._other, self._asked = at, other, 0
        self.theirs: TableEvolutionResult | None = None

    def rounded_normals(self, size: int, bits: int) -> Integers:
        if self._asked == self._at:
            self.theirs = self._other()
        self._asked += 1
        return super().rounded_normals(size, bits)


@pytest.mark.parametrize("at", [0, 7])
def test_two_writers_agree(at: int, tmp_path: Path) -> None:
    """A second process that commits first wins: its votes are taken, and the rows are the same."""
    chosen, table = TableEvolution(**SMALL), people_table(40)
    rival = Rival(at, lambda: write(chosen, table, tmp_path, Recorded(2)))
    assert write(chosen, table, tmp_path, rival).rows == rival.theirs.rows  # type: ignore[union-attr]
    with Ledger.open(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event() == chosen.plan()


# What comes out


def test_rows_are_like_the_private_ones(tmp_path: Path) -> None:
    """2000 rows with little noise: pairs of columns overlap by more than .9 in 20 and 50 bins, where independent
    columns reach less than .85 and uniform rows less than .3."""
    table = people_table(2000)
    chosen = TableEvolution(noise_multiplier=0.5, records=2000, generations=100)
    made = write(chosen, table, tmp_path, Recorded(1)).rows
    rng = np.random.default_rng(0)
    apart = list(zip(*(rng.permutation(column) for column in zip(*table.rows, strict=True)), strict=True))
    uniform = [PEOPLE.uniform(rng) for _ in range(2000)]
    ours, independent, nothing = (compare_tables(PEOPLE, rows, table.rows).pairs for rows in (made, apart, uniform))
    assert ours is not None and independent is not None and nothing is not None  # noqa: PT018
    assert ours.mean > 0.9
    assert independent.mean < 0.85
    assert nothing.mean < 0.3
    ages = [row[1] for row in made]
    real = [row[1] for row in table.rows]
    assert abs(ages.count("30") - real.count("30")) < 60, "a frequent value is a candidate of its own"
    assert abs(ages.count(MISSING) - real.count(MISSING)) < 60


def test_few_rows_with_much_noise_keep_what_can_be_seen_of_columns(tmp_path: Path) -> None:
    """100 rows with noise of 4: columns overlap by .6 or more, where even columns reach less than .5."""
    table = people_table(100)
    made = write(TableEvolution(noise_multiplier=4.0, records=100), table, tmp_path, Recorded(1)).rows
    uniform = [PEOPLE.uniform(np.random.default_rng(0)) for _ in range(100)]
    ours, nothing = (compare_tables(PEOPLE, rows, table.rows).histograms.mean for rows in (made, uniform))
    assert ours > 0.6
    assert nothing < 0.5


@pytest.mark.parametrize(
    "columns",
    [
        [{"name": "x", "type": "number", "low": 3, "high": 3}],
        [{"name": "x", "type": "category", "values": ["only"]}, {"name": "y", "type": "number", "low": 0, "high": 1}],
        [{"name": "x", "type": "category", "values": ["only"], "missing": True}],
        [{"name": "x", "type": "date", "low": "2000-01-01", "high": "2400-12-31"}],
        [{"name": "x", "type": "number", "low": -9e15, "high": 9e15, "missing": True}],
    ],
    ids=["one value", "one category", "one category or empty", "many days", "most numbers"],
)
@pytest.mark.parametrize("count", [0, 3])
def test_tables_of_any_shape(columns: list[dict[str, Any]], count: int, tmp_path: Path) -> None:
    """Single columns, single values, the widest domains, and no row at all."""
    schema = Schema.model_validate({"columns": columns})
    rows = [schema.uniform(np.random.default_rng(seed)) for seed in range(count)]
    table = Table(schema, rows, [str(index) for index in range(count)])
    result = write(TableEvolution(**SMALL), table, tmp_path, OS_ENTROPY)
    assert len(result.rows) == 30
    assert all(schema.row(dict(zip(schema.names, schema.cells(row), strict=True))) == row for row in result.rows)


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier must be at least 0"),
        ({"noise_multiplier": math.inf}, "noise_multiplier must be finite"),
        ({"noise_multiplier": 1e-9}, "noise_multiplier must be 0, or from"),
        ({"records": 0}, "records must be at least 1"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"levels": 1}, "levels must be at least 2"),
        ({"generations": 0}, "generations must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"adjacency": Adjacency.SECRET}, "adjacency must be add_remove or replace_one"),
        ({"unit": Unit("user")}, "unit must be record"),
    ],
    ids=str,
)
def test_impossible_parameters(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        TableEvolution(**{**SMALL, **changes})
    assert "\n" not in str(error.value)


def test_too_many_columns_are_refused_before_anything_is_charged(tmp_path: Path) -> None:
    schema = Schema.model_validate(
        {"columns": [{"name": f"c{index}", "type": "number", "low": 0, "high": 1} for index in range(101)]}
    )
    chosen = TableEvolution(**SMALL)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        run = begin(chosen, ledger, "os")
        with pytest.raises(ValueError, match="at most 100, not 101; leave columns out"):
            chosen.generate(Table(schema, [], []), run)
        assert not run.charged("inputs")

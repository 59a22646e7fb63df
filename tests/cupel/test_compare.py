"""`cupel compare` and `cupel accountants` as a person meets them: tables, JSON, figures, one-line errors."""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from dp_accounting import dp_event

from cupel.accounting import ACCOUNTANTS, Adjacency, Unit, account
from cupel.accounting.events import BoundedRangeSelectionDpEvent
from cupel.accounting.ledger import Charge, Commit, Ledger

DP_SGD = ["dp-sgd", "--noise-multiplier", 1, "--sampling-probability", 0.01, "--steps", 100, "--delta", 1e-5]
GAUSSIAN = ["gaussian", "--noise-multiplier", 5, "--count", 10, "--delta", 1e-5]
SELECTION = ["selection", "--eta", 0.1875, "--count", 367, "--delta", 2.9e-6]


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


def cupel(*arguments: object, cwd: Path | None = None) -> Result:
    """The command, in this process: a new one takes seconds to load the libraries."""
    from cupel.cli import _run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd or "."), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _run([str(argument) for argument in arguments])
    return Result(code, out.getvalue(), err.getvalue())


def compared(*arguments: object) -> dict[str, dict[str, float]]:
    """The values of `cupel compare … --json`, by accountant, certified before estimates."""
    result = cupel("compare", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    written = json.loads(result.stdout)
    rows = {row["method"]: row for row in reversed(written["rows"])}
    assert set(rows) | set(written["unsupported"]) == set(ACCOUNTANTS)
    return rows


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 40 selections and a noisy count."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    selections = dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(0.1), 40)
    plan = dp_event.ComposedDpEvent([selections, dp_event.DiscreteLaplaceDpEvent(0.1, 1)])
    with Ledger.open(path) as ledger:
        run = ledger.begin("run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
        for key, event in (("selections", selections), ("count", dp_event.DiscreteLaplaceDpEvent(0.1, 1))):
            run.step(charge=Charge(key=key, event=event, stage=key))
            run.step(commit=Commit(key=key, value=[1]))
        run.finish()
    return path


def test_the_table_names_everything() -> None:
    result = cupel("compare", *GAUSSIAN)
    assert result.returncode == 0, result.stderr
    # ε of √10/5-GDP at 1e-5 is 2.594382…: exact, rounded up.
    assert re.search(r"gdp +│ 2\.59439 +│.*│ certified │", result.stdout)
    for column in ("accountant", "ε at most", "certified interval", "rigor", "time"):
        assert column in result.stdout
    for name in ACCOUNTANTS:
        assert name in result.stdout
    assert "add_remove" in result.stdout


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "zero_out"])
def test_the_numbers_are_those_of_account(adjacency: str) -> None:
    step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    rows = compared(*DP_SGD, "--adjacency", adjacency)
    assert "pld" in rows
    for name, row in rows.items():
        event = dp_event.SelfComposedDpEvent(step, 100)
        assert row["value"] == account(event, method=name, adjacency=adjacency, delta=1e-5).value
        assert row["adjacency"] == adjacency
        assert row["seconds"] > 0


def test_selections_by_eta_and_by_clip() -> None:
    by_eta = compared("selection", "--eta", 0.1875, "--count", 367, "--delta", 1e-5)
    clipped = ["selection", "--clip", 9, "--temperature", 1.5, "--batch-size", 64, "--count", 367, "--delta", 1e-5]
    assert {name: row["value"] for name, row in compared(*clipped).items()} == {
        name: row["value"] for name, row in by_eta.items()
    }
    # A record that is exchanged moves a score twice as far: basic composition counts exactly twice as much.
    replaced = compared(*clipped, "--adjacency", "replace_one")
    assert replaced["basic"]["value"] == pytest.approx(2 * by_eta["basic"]["value"], rel=1e-12)


def test_a_path_is_a_ledger(ledger: Path) -> None:
    rows = compared(ledger, "--delta", 1e-5)
    # 40 selections of η = 0.1 and a count of ε = 0.1, by basic composition.
    assert rows["basic"]["value"] == pytest.approx(4.1, rel=1e-12)
    for arguments in (["ledger", ledger, "--delta", 1e-5], ["--delta", 1e-5, ledger]):
        assert compared(*arguments)["basic"]["value"] == rows["basic"]["value"]
    table = cupel("compare", ledger, "--delta", "1e-5", "--method", "basic", "--method", "zcdp").stdout
    assert "4.1" in table
    assert "prv" not in table


def test_a_figure_stands_alone(tmp_path: Path) -> None:
    figure = tmp_path / "figure.svg"
    result = cupel("compare", *GAUSSIAN, "-o", figure, "--json")
    assert result.returncode == 0, result.stderr
    written = json.loads(result.stdout)
    assert [panel["quantity"] for panel in written["panels"]] == ["epsilon", "delta", "beta"]
    drawing = figure.read_text()
    root = ElementTree.fromstring(drawing)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]
    assert "var(" not in drawing
    words = " ".join(element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "Gaussian DP" in words
    assert "number of steps" in words


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare", "gausian", "--delta", "1e-5"], "neither a ledger nor one of dp-sgd"),
        (["compare", "missing.sqlite", "--delta", "1e-5"], "missing.sqlite: there is no ledger here"),
        (["compare", "text.txt", "--delta", "1e-5"], "text.txt"),
        (["compare", "text.txt"], "--delta"),
        (["compare", *DP_SGD[:-1], 2], "delta must be strictly between 0 and 1"),
        (["compare", *DP_SGD, "--adjacency", "secret"], "adjacency must be one of add_remove"),
        (["compare", *DP_SGD, "--method", "magic"], "method must be one of basic"),
        (["compare", *DP_SGD, "--method", "zcdp"], "no accountant that was asked has a bound here: zcdp knows no"),
        (["compare", *DP_SGD, "-o", "figure.png"], "must end in .svg, not 'figure.png'"),
        (["compare", *DP_SGD, "-o", "nowhere/figure.svg"], "there is no such folder"),
        (["compare", *DP_SGD, "--seconds", "0"], "seconds must be above 0"),
        (["compare", "dp-sgd", "--noise-multiplier", 0, *DP_SGD[3:]], "noise_multiplier must be above 0"),
        (["compare", *DP_SGD[:4], 0, *DP_SGD[5:]], "sampling_probability must be above 0"),
        (["compare", *DP_SGD[:4], 1.5, *DP_SGD[5:]], "sampling_probability must be between 0 and 1"),
        (["compare", *DP_SGD[:6], 0, *DP_SGD[7:]], "steps must be at least 1"),
        (["compare", *DP_SGD[:6], 1.5, *DP_SGD[7:]], "--steps"),
        (["compare", "gaussian", "--noise-multiplier", "nan", "--delta", "1e-5"], "noise_multiplier must be a number"),
        (["compare", *SELECTION, "--clip", 3], "give either --eta, or all of --clip"),
        (["compare", "selection", "--count", 3, "--delta", "1e-5"], "give either --eta, or all of --clip"),
        (["compare", "selection", "--eta", -1, "--count", 3, "--delta", "1e-5"], "eta must be above 0"),
        (["accountants", "--adjacency", "sideways"], "adjacency must be one of"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments: list[object], says: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no ledger\n")
    result = cupel(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    line = result.stderr.splitlines()[-1]
    assert line.startswith("cupel: ")
    assert says in line
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("command", [["compare"], ["compare", "dp-sgd"], ["compare", "ledger"], ["accountants"]])
def test_every_command_shows_an_example(command: list[str]) -> None:
    result = cupel(*command, "--help")
    assert result.returncode == 0
    assert "Example: cupel " + command[0] in result.stdout


def test_the_registry_is_a_table_with_reasons() -> None:
    one = cupel("accountants", "--adjacency", "replace_one")
    assert one.returncode == 0, one.stderr
    assert "rdp has no bound for Poisson sampling under replace_one" in " ".join(one.stdout.split())
    assert re.search(r"Gaussian noise +– +C", one.stdout)
    answers = json.loads(cupel("accountants", "--json").stdout)
    assert {answer["adjacency"] for answer in answers} == set(map(str, Adjacency))
    assert {answer["method"] for answer in answers} == set(ACCOUNTANTS)
    assert all((answer["rigor"] is None) != (answer["reason"] is None) for answer in answers)

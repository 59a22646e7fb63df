"""`dpassay compare` and `dpassay accountants` as a person meets them: tables, JSON, figures, one-line errors."""

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

from dpassay.accounting import ACCOUNTANTS, Adjacency, Unit, account
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, SecretReleaseDpEvent
from dpassay.accounting.ledger.entries import Charge, Commit
from dpassay.accounting.ledger.evidence import not_recorded
from dpassay.accounting.ledger.ledger import Ledger

DP_SGD = ["dp-sgd", "--noise-multiplier", 1, "--sampling-probability", 0.01, "--steps", 100, "--delta", 1e-5]
GAUSSIAN = ["gaussian", "--noise-multiplier", 5, "--count", 10, "--delta", 1e-5]
METHODS = ["--method", "lattice", "--method", "rdp", "--method", "pld"]
VECTORS = ["vectors", "--layers", 4, "--clip", 1, "--records", 2]
SELECTION = ["selection", "--eta", 0.1875, "--count", 367, "--delta", 2.9e-6]


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


def dpassay(*arguments: object, cwd: Path | None = None) -> Result:
    """The command, in this process: a new one takes seconds to load the libraries."""
    from dpassay.cli.app import run_command

    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd or "."), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command([str(argument) for argument in arguments])
    return Result(code, out.getvalue(), err.getvalue())


def compared(*arguments: object, besides: tuple[str, ...] = ()) -> dict[str, dict[str, float]]:
    """The values of `dpassay compare … --json`, by accountant, certified before estimates."""
    result = dpassay("compare", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    written = json.loads(result.stdout)
    rows = {row["method"]: row for row in reversed(written["rows"])}
    assert set(rows) | set(written["unsupported"]) == {*ACCOUNTANTS, *besides}
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
    result = dpassay("compare", *GAUSSIAN)
    assert result.returncode == 0, result.stderr
    # ε of √10/5-GDP at 1e-5 is 2.594382…: exact, rounded up.
    assert re.search(r"gdp +│ 2\.59439 +│.*│ certified │", result.stdout)
    for column in ("accountant", "ε at most", "certified interval", "rigor", "time"):
        assert column in result.stdout
    for name in ACCOUNTANTS:
        assert name in result.stdout
    assert "add_remove" in result.stdout


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_numbers_are_those_of_account(adjacency: str) -> None:
    step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    result = dpassay("compare", *DP_SGD, "--adjacency", adjacency, *METHODS, "--json")
    written = json.loads(result.stdout)
    rows = {row["method"]: row for row in reversed(written["rows"])}
    assert set(rows) == {"lattice", "pld", "rdp"} - set(written["unsupported"])
    assert ("rdp" in rows) == (adjacency == "add_remove")
    for name, row in rows.items():
        event = dp_event.SelfComposedDpEvent(step, 100)
        asked = account(event, method=name, adjacency=adjacency, delta=1e-5)
        if asked.interval is None:
            assert row["value"] == asked.value
        else:  # the certified one is asked for a narrower interval
            assert asked.interval.lower <= row["value"] <= asked.value
        assert row["adjacency"] == adjacency
        assert row["seconds"] > 0


def test_selections_by_eta_and_by_clip() -> None:
    by_eta = compared("selection", "--eta", 0.1875, "--count", 40, "--delta", 1e-5, besides=("adaptive",))
    clipped = ["selection", "--clip", 9, "--temperature", 1.5, "--batch-size", 64, "--count", 40, "--delta", 1e-5]
    assert {name: row["value"] for name, row in compared(*clipped, besides=("adaptive",)).items()} == {
        name: row["value"] for name, row in by_eta.items()
    }
    # A record that is exchanged moves a score twice as far: basic composition counts exactly twice as much.
    replaced = compared(*clipped, "--adjacency", "replace_one", besides=("adaptive",))
    assert replaced["basic"]["value"] == pytest.approx(2 * by_eta["basic"]["value"], rel=1e-12)


def test_a_secret_by_its_records_and_by_its_counts() -> None:
    """80 records drawn with probability 0.01, σ = 2, p = 1e-4: r = 0.00173397, and 0.0162015 after ten rounds."""
    alike = ["secret", "--sigma", 2, "--p", 1e-4, "--json", "--occurrences", 80, "--sampling-probability", 0.01]
    for rounds, r in ((1, 0.00173397), (10, 0.0162015)):
        result = dpassay("compare", *alike, "--rounds", rounds)
        assert result.returncode == 0, result.stderr
        rows = {row["method"]: row for row in json.loads(result.stdout)["rows"]}
        low, high = rows["secret_protection"]["interval"]
        assert low - 5e-8 <= r <= high + 5e-8
        assert rows["single_gaussian"]["rigor"] == "estimate"
        assert rows["single_gaussian"]["value"] < low
    weights = dpassay("compare", "secret", "--sigma", 0, "--p", 0.01, "--weights", "0.5,0.5")
    assert "0.505" in weights.stdout  # 0.5 + 0.5 · 0.01: the bare count is released
    assert "sigma must be above 0" in weights.stdout


def test_vectors_by_epsilon_and_by_sigma() -> None:
    """Four layers at (5, 1e-5): 1.783737 jointly, 4.098369 by the classical noise with basic composition."""
    vectors = ["vectors", "--layers", 4, "--clip", 1, "--records", 2, "--delta", 1e-5, "--json"]
    written = json.loads(dpassay("compare", *vectors, "--epsilon", 5).stdout)
    noises = {row["method"]: row["value"] for row in written["rows"]}
    assert written["quantity"] == "noise_multiplier"
    assert noises["exact"] == pytest.approx(1.783737, abs=5e-7)
    assert noises["classical"] == pytest.approx(4.098369, abs=5e-7)
    # Under replace_one the sensitivity is 2·1/2 = 1, so σ is the multiplier; that noise gives ε = 5 back.
    epsilons = {
        method: {
            row["method"]: row["value"]
            for row in json.loads(dpassay("compare", *vectors, "--sigma", noise).stdout)["rows"]
        }
        for method, noise in noises.items()
    }
    for method, values in epsilons.items():
        assert 5 * (1 - 1e-6) <= values[method] <= 5 * (1 + 1e-6)
    table = dpassay("compare", *vectors[:-1], "--sigma", 0.1)
    assert "classical: the classical σ gives (ε, δ)-DP only up to" in table.stdout


def test_ledgers_of_secrets_are_not_compared(tmp_path: Path) -> None:
    """Their ε over a reference is no ε of differential privacy, and runs for different secrets do not add up."""
    path, release = tmp_path / "secrets.sqlite", SecretReleaseDpEvent(2.0, (0.5, 0.5))
    with Ledger.open(path) as kept:
        kept.begin("run", plan=release, adjacency=Adjacency.SECRET, unit=Unit("secret"), about={})
    result = dpassay("compare", path, "--delta", 1e-5)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.rstrip().endswith("use dpassay account")
    assert len(result.stderr.splitlines()) == 1


def test_a_path_is_a_ledger(ledger: Path) -> None:
    rows = compared(ledger, "--delta", 1e-5)
    # 40 selections of η = 0.1 and a count of ε = 0.1, by basic composition.
    assert rows["basic"]["value"] == pytest.approx(4.1, rel=1e-12)
    for arguments in (["ledger", ledger, "--delta", 1e-5], ["--delta", 1e-5, ledger]):
        assert compared(*arguments)["basic"]["value"] == rows["basic"]["value"]
    table = dpassay("compare", ledger, "--delta", "1e-5", "--method", "basic", "--method", "zcdp").stdout
    assert "4.1" in table
    assert "prv" not in table


def test_a_comparison_of_ledgers_says_what_it_assumes_of_them(ledger: Path, tmp_path: Path) -> None:
    anchored = json.loads(dpassay("compare", ledger, "--delta", 1e-5, "--method", "basic", "--json").stdout)
    assert anchored["assumptions"] == [f"ledger.sqlite: assumed: {not_recorded('run')}"]
    path, event = tmp_path / "part.sqlite", dp_event.LaplaceDpEvent(4.0)
    with Ledger.open(path) as kept:
        plan = dp_event.SelfComposedDpEvent(event, 2)
        run = kept.begin("run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
        run.step(charge=Charge(key="s", event=event, stage="s"))
    result = json.loads(dpassay("compare", path, "--delta", 1e-5, "--method", "basic", "--json").stdout)
    assert result["assumptions"] == [
        "part.sqlite: run 'run' is unfinished; its charges so far are compared, not its whole plan.",
        "part.sqlite: no anchor of this ledger was found, so a restored or rewritten file would not show.",
        f"part.sqlite: assumed: {not_recorded('run')}",
    ]


@pytest.mark.slow
def test_a_figure_stands_alone(tmp_path: Path) -> None:
    figure = tmp_path / "figure.svg"
    result = dpassay("compare", *GAUSSIAN, "--seconds", 1, "-o", figure, "--json")
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
        (["compare", *DP_SGD, "--method", "magic"], "method must be one of "),
        (
            ["compare", *DP_SGD, "--method", "zcdp"],
            "no accountant that was asked has a bound here: zcdp has no amplification",
        ),
        (["compare", *DP_SGD, "-o", "figure.gif"], "must end in .svg, .pdf or .png, not 'figure.gif'"),
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
        (["compare", "secret", "--sigma", 2, "--p", 0.1], "give either --weights"),
        (["compare", "secret", "--sigma", 2, "--p", 0.1, "--weights", "a,b"], "weights must be probabilities"),
        (["compare", "secret", "--sigma", 2, "--p", 0.1, "--weights", "0.5,0.6"], "must sum to 1"),
        (["compare", "secret", "--sigma", 2, "--p", 1, "--weights", "0.5,0.5"], "p must be strictly"),
        (["compare", "secret", "--sigma", -2, "--p", 0.1, "--weights", "0.5,0.5"], "sigma must be at least 0"),
        (["compare", *VECTORS, "--delta", 1e-5], "give either --epsilon"),
        (["compare", *VECTORS, "--delta", 1e-5, "--epsilon", 1, "--sigma", 1], "give either --epsilon"),
        (["compare", *VECTORS, "--delta", 1e-5, "--epsilon", 0], "epsilon must be above 0"),
        (["compare", *VECTORS, "--delta", 1e-5, "--sigma", 1, "--method", "rdp"], "method must be one of exact"),
        (["accountants", "--adjacency", "sideways"], "adjacency must be one of"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments: list[object], says: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no ledger\n")
    result = dpassay(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    line = result.stderr.splitlines()[-1]
    assert line.startswith("dpassay: ")
    assert says in line
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("command", [["compare"], ["compare", "dp-sgd"], ["compare", "ledger"], ["accountants"]])
def test_every_command_shows_an_example(command: list[str]) -> None:
    result = dpassay(*command, "--help")
    assert result.returncode == 0
    assert "Example: dpassay " + command[0] in result.stdout


@pytest.mark.slow
def test_every_command_of_the_guide_runs(ledger: Path, tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "compare.md").read_text()
    commands = [
        line.split() for block in re.findall(r"```sh\n(.*?)```", guide, flags=re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) >= 5
    for command in commands:
        arguments = [str(ledger) if argument.endswith(".sqlite") else argument for argument in command[1:]]
        if arguments[0] == "compare" and arguments[1] not in ("secret", "vectors"):
            arguments += ["--method", "lattice"]
        result = dpassay(*arguments, cwd=tmp_path)
        assert result.returncode == 0, (command, result.stderr)


def test_the_registry_is_a_table_with_reasons() -> None:
    item = dpassay("accountants", "--adjacency", "replace_one")
    assert item.returncode == 0, item.stderr
    assert "rdp has no bound for Poisson sampling under replace_one" in " ".join(item.stdout.split())
    header = item.stdout.splitlines()[2].split()
    gaussian = next(line for line in item.stdout.splitlines() if line.startswith(" Gaussian noise ")).split()
    marks = dict(zip(header[1:], gaussian[2:], strict=True))
    assert (marks["basic"], marks["gdp"], marks["pld"]) == ("–", "C", "E")
    answers = json.loads(dpassay("accountants", "--json").stdout)
    assert {answer["adjacency"] for answer in answers} == set(map(str, Adjacency))
    assert {answer["method"] for answer in answers} == set(ACCOUNTANTS)
    assert all((answer["rigor"] is None) != (answer["reason"] is None) for answer in answers)

"""`dpassay account` on files of other libraries: under what is stated, and for each sampler that nobody rules out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from command import run
from dp_accounting import DpEvent, dp_event
from scipy import optimize, special

from dpassay.accounting.adjacency import Adjacency
from dpassay.base.errors import InputError
from dpassay.base.number_format import format_number
from dpassay.jobs.account import Account, account

HISTORY = {"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}


def written(folder: Path, content: Any) -> Path:
    path = folder / "state.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_of_another_library_under_what_is_stated(tmp_path: Path) -> None:
    """Against Opacus' own accountant, for Poisson samples."""
    from opacus.accountants import PRVAccountant

    path = written(tmp_path, HISTORY)
    result = account(path, delta=1e-5, sampler="poisson", adjacency="add_remove", normalizer="public")
    other = PRVAccountant()
    other.history = [(1.0, 0.01, 500)]
    best = next(bound for bound in result.bounds if bound.method == "lattice")
    assert best.value == pytest.approx(other.get_epsilon(1e-5), abs=0.02)
    assert best.interval is not None
    assert any("Records were sampled: poisson, as stated" in item for item in best.assumptions)
    assert result.if_sampled == ()
    (file,) = result.foreign
    assert (file.library, file.path) == ("Opacus", path)
    assert json.loads(json.dumps(result.to_json()))["foreign"][0]["library"] == "Opacus"


def test_what_nobody_states_has_no_bound_and_each_sampler_its_own(tmp_path: Path) -> None:
    result = account(written(tmp_path, HISTORY), delta=1e-5, records=10_000)
    assert result.adjacency is Adjacency.ZERO_OUT
    assert all(bound.interval is None for bound in result.bounds), "a worse event gives no lower end"
    values = by_sampler(result)
    assert values["poisson", "zero_out"] == pytest.approx(1.326, abs=1e-3)
    for adjacency, fixed in (("zero_out", ()), ("replace_one", ("fixed",))):
        ordered = [values[sampler, adjacency] for sampler in ("poisson", *fixed, "shuffled", "unknown")]
        assert ordered == sorted(value for value in ordered if value is not None)
    every_step = exact_epsilon(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), 500), "replace_one")
    assert values["shuffled", "replace_one"] == values["unknown", "replace_one"] == pytest.approx(every_step)
    whole = account(written(tmp_path, HISTORY), delta=1e-5, records=10_000, conditions=("epochs", "once"))
    once_an_epoch = exact_epsilon(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), 5), "replace_one")
    assert by_sampler(whole)["shuffled", "replace_one"] == pytest.approx(once_an_epoch)
    none = account(written(tmp_path, HISTORY), delta=1e-5, adjacency="add_remove", normalizer="public")
    for sampler in ("shuffled", "unknown"):
        assert by_sampler(none)[sampler, "add_remove"] is None


def by_sampler(result: Account) -> dict[tuple[str, str], float | None]:
    return {
        (item.sampler.value, item.adjacency.value): None if item.bound is None else item.bound.value
        for item in result.if_sampled
    }


def exact_epsilon(event: DpEvent, adjacency: str) -> float:
    """The exact ε of Gaussians at δ = 1e-5: the root of the closed form (Balle and Wang 2018)."""
    steps, scale = event.count, 2.0 if adjacency == "replace_one" else 1.0
    mu = scale * math.sqrt(steps) / event.event.noise_multiplier

    def delta(epsilon: float) -> float:
        first, second = special.log_ndtr([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return math.exp(first) - math.exp(epsilon + second)

    return float(optimize.brentq(lambda epsilon: delta(epsilon) - 1e-5, 1e-3, 5000))


def test_files_of_other_libraries_compose_with_each_other(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    first = written(tmp_path, HISTORY)
    second = written(tmp_path / "one", "GaussianDpEvent(noise_multiplier=10.0)")
    both = account([first, second], delta=1e-5, sampler="poisson")
    alone = account(first, delta=1e-5, sampler="poisson")
    assert {both.adjacency, alone.adjacency} == {Adjacency.ZERO_OUT}
    assert both.bounds[0].value > alone.bounds[0].value
    assert [file.library for file in both.foreign] == ["Opacus", "dp_accounting"]


@pytest.mark.parametrize(
    ("content", "given", "message"),
    [
        ("hello", {}, "is no ledger, claim, or file of a library"),
        (HISTORY, {"sampler": "sometimes"}, "sampler must be one of poisson, fixed, shuffled, unknown"),
        (HISTORY, {"adjacency": "secret"}, "adjacency must be one of add_remove, replace_one, zero_out"),
        (HISTORY, {"records": 0}, "records must be"),
        (HISTORY, {"sampler": "fixed", "adjacency": "replace_one"}, "give --records"),
        ("GaussianDpEvent(noise_multiplier=-1.0)", {}, "number out of range: noise_multiplier must be at least 0"),
        ("GaussianDpEvent(noise_multiplier='x')", {}, "number out of range: noise_multiplier must be a number"),
    ],
)
def test_wrong_files_and_statements_are_one_line(
    tmp_path: Path, content: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        account(written(tmp_path, content), delta=1e-5, **given)
    assert "\n" not in str(error.value)


def test_groups_and_users_over_sampled_steps(tmp_path: Path) -> None:
    path = written(tmp_path, HISTORY)
    given: dict[str, Any] = {"delta": 1e-5, "sampler": "poisson", "adjacency": "zero_out"}
    group, user = account(path, unit="group(3)", **given), account(path, unit="user(3)", **given)
    (bound,), (same,) = group.bounds, user.bounds
    assert bound.value == same.value > account(path, **given).bounds[0].value
    assert (bound.method, bound.rigor) == ("lattice", "certified")
    result = run(
        "account", path, "--unit", "user", "--records-per-user", 3, "--delta", "1e-5", "--sampler", "poisson", "--json"
    )
    assert json.loads(result.stdout)["unit"] == "user(3)"
    wrong = run("account", path, "--records-per-user", 3, "--delta", "1e-5")
    assert (wrong.returncode, wrong.stderr) == (2, "dpassay: --records-per-user goes with --unit user\n")


@pytest.mark.grid
@pytest.mark.parametrize(
    ("unit", "says"),
    [
        (None, "The unit is one record; the state of Opacus' rdp accountant does not record it, and nobody stated it."),
        ("record", "The unit is record, as stated: its events are charged for one record;"),
        ("user", "The unit is user, as stated: its events are charged for all records of a user together;"),
    ],
)
def test_every_bound_assumes_the_unit_that_a_file_does_not_record(tmp_path: Path, unit: str | None, says: str) -> None:
    """Record and user cost the same: whose contribution was clipped is what is assumed."""
    path = written(tmp_path, HISTORY)
    result = account(path, delta=1e-5, sampler="poisson", adjacency="zero_out", unit=unit)
    assert all(sum(item.startswith(says) for item in bound.assumptions) == 1 for bound in result.bounds)
    record = account(path, delta=1e-5, sampler="poisson", adjacency="zero_out")
    if unit is not None:
        assert [bound.value for bound in result.bounds] == [bound.value for bound in record.bounds]
    conditional = account(path, delta=1e-5, unit=unit).if_sampled[0]
    assert conditional.bound is not None
    assert any(item.startswith(says) for item in conditional.bound.assumptions)


def test_a_group_is_of_records_that_are_assumed_to_be_charged_one_by_one(tmp_path: Path) -> None:
    result = account(written(tmp_path, "GaussianDpEvent(noise_multiplier=10.0)"), delta=1e-5, unit="group(3)")
    assert result.bounds
    says = "The unit is group(3), as stated: its events are charged for one record, and a group has 3;"
    assert all(any(item.startswith(says) for item in bound.assumptions) for bound in result.bounds)


def test_a_recorded_unit_is_not_assumed() -> None:
    result = account(FILES / "flower-poisson.json")
    assert str(result.unit) == "user"
    assert not any(item.startswith("The unit is") for bound in result.bounds for item in bound.assumptions)


FILES = Path(__file__).parents[2] / "accounting" / "interop" / "files"


@pytest.mark.parametrize("content", [HISTORY, {"steps": [[0.1, 1e-6]]}])
def test_without_delta_nothing_is_answered(tmp_path: Path, content: Any) -> None:
    done = run("account", written(tmp_path, content))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert "state it with --delta" in line


def test_a_pure_epsilon_without_delta_says_that_delta_is_missing(tmp_path: Path) -> None:
    done = run("account", written(tmp_path, "LaplaceDpEvent(noise_multiplier=10.0)"))
    assert done.returncode == 0
    assert "No δ is given, so only a pure ε is bounded" in done.stdout
    assert "basic" in done.stdout


def test_deltas_that_use_up_delta_are_named(tmp_path: Path) -> None:
    """0.6 + 0.6 of 1 in units of 1e-5; at a larger δ there is a bound."""
    path = written(tmp_path, {"steps": [[0.1, 6e-6], [0.2, 6e-6]]})
    result = account(path, delta=1e-5)
    assert {bound.value for bound in result.bounds} == {math.inf}
    (hint,) = result.hints
    assert format_number(1.2e-5) in hint
    assert "--delta" in hint
    larger = account(path, delta=2e-5)
    assert larger.hints == ()
    assert min(bound.value for bound in larger.bounds) <= 0.3 * (1 + 1e-9)


def test_what_is_printed_where_nobody_states_the_sampler(tmp_path: Path) -> None:
    """The table by sampler first, no rows of infinities, and what to state."""
    done = run("account", written(tmp_path, HISTORY), "--delta", 1e-5)
    printed = " ".join(done.stdout.split())
    assert printed.startswith("How records were sampled is not recorded")
    assert " inf " not in printed
    assert "For a bound with the sampler fixed, state the number of records with --records." in printed
    assert "secret_protection" not in printed
    assert not any("No bound is known" in line for line in done.stdout.splitlines() if "assumed:" in line)
    assert "if each epoch ran to its end, state it with --condition epochs" in printed
    options = (
        "--adjacency add_remove|replace_one|zero_out --unit 'record|user|group(k)' --condition clipping "
        "--condition noise --condition once --sampler poisson|fixed|shuffled|unknown"
    )
    assert f"nobody stated: {options}" in printed
    body = json.loads(run("account", written(tmp_path, HISTORY), "--delta", 1e-5, "--json").stdout)
    assert len(body["hints"]) == 2
    assert {item["name"] for item in body["unstated"]} == {
        *("adjacency", "unit", "clipping", "noise", "once", "sampler"),
    }
    assert "secret_protection" in body["unsupported"]
    with_records = account(written(tmp_path, HISTORY), delta=1e-5, records=10_000)
    assert not any("--records" in hint for hint in with_records.hints)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("opake.json", "it states ε = 3 itself"),
        ("tensorflow-privacy-without.txt", "It states ε = 23.580 with each example once an epoch and 1.491 for"),
    ],
)
def test_an_epsilon_that_a_file_states_is_shown_and_not_assumed(name: str, shown: str) -> None:
    """The first is its budget, the second are the numbers of the text."""
    done = run("account", FILES / name, "--delta", 1e-5)
    (line,) = [line for line in done.stdout.splitlines() if shown in line]
    assert "assumed" not in line

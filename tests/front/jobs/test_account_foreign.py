"""`cupel account` on files of other libraries: under what is stated, and for each sampler that nobody rules out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import DpEvent, dp_event
from scipy import optimize, special

from cupel.errors import InputError
from cupel.jobs.account import account

HISTORY = {"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}


def written(folder: Path, content: Any) -> Path:
    path = folder / "state.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_of_another_library_under_what_is_stated(tmp_path: Path) -> None:
    """Against Opacus' own accountant, for Poisson samples."""
    from opacus.accountants import PRVAccountant

    path = written(tmp_path, HISTORY)
    found = account(path, delta=1e-5, sampler="poisson", adjacency="add_remove")
    other = PRVAccountant()
    other.history = [(1.0, 0.01, 500)]
    best = next(bound for bound in found.bounds if bound.method == "lattice")
    assert best.value == pytest.approx(other.get_epsilon(1e-5), abs=0.02)
    assert best.interval is not None
    assert any("Records were sampled: poisson, as stated" in one for one in best.assumptions)
    assert found.if_sampled == ()
    (file,) = found.foreign
    assert (file.library, file.path) == ("Opacus", path)
    assert json.loads(json.dumps(found.to_json()))["foreign"][0]["library"] == "Opacus"


def test_what_nobody_states_has_no_bound_and_each_sampler_its_own(tmp_path: Path) -> None:
    found = account(written(tmp_path, HISTORY), delta=1e-5, records=10_000)
    assert {bound.value for bound in found.bounds} == {math.inf}
    assert all(bound.interval is None for bound in found.bounds), "a worse event gives no lower end"
    values = {
        (one.sampler.value, one.adjacency.value): None if one.bound is None else one.bound.value
        for one in found.if_sampled
    }
    assert values["poisson", "add_remove"] == pytest.approx(1.326, abs=1e-3)
    for sampler in ("fixed", "shuffled", "unknown"):
        assert values[sampler, "add_remove"] is None
    ordered = [values[sampler, "replace_one"] for sampler in ("poisson", "fixed", "shuffled", "unknown")]
    assert ordered == sorted(value for value in ordered if value is not None)
    once_an_epoch = exact_epsilon(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), 5), "replace_one")
    assert values["shuffled", "replace_one"] == pytest.approx(once_an_epoch)


def exact_epsilon(event: DpEvent, adjacency: str) -> float:
    """The exact ε of Gaussians at δ = 1e-5: the root of the closed form (Balle and Wang 2018)."""
    steps, scale = event.count, 2.0 if adjacency == "replace_one" else 1.0
    mu = scale * math.sqrt(steps) / event.event.noise_multiplier

    def delta(epsilon: float) -> float:
        first, second = special.log_ndtr([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
        return math.exp(first) - math.exp(epsilon + second)

    return float(optimize.brentq(lambda epsilon: delta(epsilon) - 1e-5, 1e-3, 600))


def test_files_of_other_libraries_compose_with_each_other(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    first = written(tmp_path, HISTORY)
    second = written(tmp_path / "one", "GaussianDpEvent(noise_multiplier=10.0)")
    both = account([first, second], delta=1e-5, sampler="poisson", adjacency="add_remove")
    alone = account(first, delta=1e-5, sampler="poisson", adjacency="add_remove")
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

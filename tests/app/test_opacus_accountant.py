"""The accountant inside a real `PrivacyEngine` that trains: its ε, its checkpoint, and what the command reads there."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus_run import BATCH, ROWS, trained

from dpassay.accounting.adjacency import Adjacency
from dpassay.base.errors import InputError
from dpassay.jobs.account import account
from dpassay.opacus_accountant import DpassayAccountant


@pytest.mark.filterwarnings("ignore")
def test_a_private_engine_that_trains_and_its_checkpoint(tmp_path: Path) -> None:
    """ε beside Opacus' own accountants over the same history; the command reads the same number from the checkpoint."""
    engine = PrivacyEngine(accountant="dpassay")
    model = trained(engine)
    assert isinstance(engine.accountant, DpassayAccountant)
    steps = len(engine.accountant)
    assert 2 * ROWS // BATCH - 5 <= steps <= 2 * ROWS // BATCH
    epsilon = engine.get_epsilon(1e-5)
    others = RDPAccountant(), PRVAccountant()
    for other in others:
        other.history = engine.accountant.history
    assert others[0].get_epsilon(1e-5) >= epsilon
    assert others[1].get_epsilon(1e-5) == pytest.approx(epsilon, abs=0.02)
    interval = engine.accountant.bound(1e-5).interval
    assert interval is not None
    assert interval.lower <= epsilon <= interval.lower * 1.01
    engine.save_checkpoint(path=tmp_path / "checkpoint.pt", module=model)
    result = account(tmp_path / "checkpoint.pt", delta=1e-5, sampler="poisson")
    assert result.adjacency is Adjacency.ZERO_OUT
    assert min(bound.value for bound in result.bounds if bound.method == "lattice") == epsilon


@pytest.mark.filterwarnings("ignore")
def test_a_shuffled_run_has_no_bound_at_add_remove(tmp_path: Path) -> None:
    """Opacus' accountants answer the same number for it as for Poisson samples."""
    engine = PrivacyEngine(accountant="dpassay")
    model = trained(engine, poisson=False)
    accountant = engine.accountant
    assert isinstance(accountant, DpassayAccountant)
    as_poisson = engine.get_epsilon(1e-5)
    accountant.adjacency = "add_remove"
    accountant.sampler = "shuffled"
    accountant.conditions = {"epochs", "once"}
    with pytest.warns(UserWarning, match="No bound is known at add_remove where the sampler is shuffled"):
        assert engine.get_epsilon(1e-5) == math.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.get_epsilon(1e-5) == math.inf, "warned once"
    accountant.adjacency = "replace_one"
    once_an_epoch = engine.get_epsilon(1e-5)
    assert as_poisson < once_an_epoch < math.inf
    assert accountant.bound(1e-5).interval is None
    engine.save_checkpoint(path=tmp_path / "checkpoint.pt", module=model)
    result = account(tmp_path / "checkpoint.pt", delta=1e-5)
    assert (result.adjacency, result.if_sampled) == (Adjacency.REPLACE_ONE, ())
    assert min(bound.value for bound in result.bounds if bound.method == "lattice") == once_an_epoch
    with pytest.raises(InputError, match="the file says sampler shuffled, not poisson"):
        account(tmp_path / "checkpoint.pt", delta=1e-5, sampler="poisson")


@pytest.mark.filterwarnings("ignore")
def test_a_state_is_loaded_and_noise_is_calibrated() -> None:
    first, second = DpassayAccountant(), DpassayAccountant()
    for noise in (1.0, 1.0, 2.0):
        first.step(noise_multiplier=noise, sample_rate=0.1)
    assert first.history == [(1.0, 0.1, 2), (2.0, 0.1, 1)]
    second.load_state_dict(first.state_dict())
    assert second.get_epsilon(1e-5) == first.get_epsilon(1e-5) > 0
    asked: dict[str, Any] = {"target_epsilon": 2.0, "target_delta": 1e-5, "sample_rate": 0.01, "steps": 200}
    results = {name: get_noise_multiplier(accountant=name, **asked) for name in ("dpassay", "rdp")}
    assert 0.5 < results["dpassay"] <= results["rdp"]


def test_a_state_keeps_the_sampler_and_the_relation() -> None:
    first, second = DpassayAccountant(), DpassayAccountant()
    first.step(noise_multiplier=1.0, sample_rate=0.1)
    first.sampler, first.adjacency = "shuffled", "replace_one"
    first.normalizer, first.conditions = "public", {"epochs"}
    state = first.state_dict()
    assert (state["sampler"], state["adjacency"]) == ("shuffled", "replace_one")
    assert (state["normalizer"], state["conditions"]) == ("public", ["epochs"])
    assert {type(state[key]) for key in ("sampler", "adjacency", "normalizer")} == {str}, (
        "read back without importing anything"
    )
    second.load_state_dict(state)
    assert (second.sampler, second.adjacency) == ("shuffled", "replace_one")
    assert (second.normalizer, second.conditions) == ("public", {"epochs"})
    second.load_state_dict({"history": [(2.0, 0.1, 1)], "mechanism": "dpassay"})
    assert (second.sampler, second.adjacency) == ("shuffled", "replace_one")
    assert set(DpassayAccountant().state_dict()) == {"history", "mechanism"}, "nobody may have looked at the defaults"
    for key, value in (("sampler", "x"), ("adjacency", "secret"), ("normalizer", "x"), ("conditions", ["x"])):
        with pytest.raises(ValueError, match="must be one of"):
            second.load_state_dict({**state, key: value})
    with pytest.raises(ValueError, match="conditions must be a list"):
        second.load_state_dict({**state, "conditions": "epochs"})
    assert second.history == [(2.0, 0.1, 1)]


def test_a_bound_lists_what_it_assumes() -> None:
    accountant = DpassayAccountant()
    accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    assumed = " ".join(accountant.bound(1e-5).assumptions)
    for words in (
        "clipped each record's contribution",
        "that the accountant's attributes were set to",
        "The unit is one record",
    ):
        assert words in assumed
    assert "in each step's batch independently" in assumed
    accountant.sampler, accountant.adjacency = "shuffled", "replace_one"
    assert "each record counts in all 1 steps" in " ".join(accountant.bound(1e-5).assumptions)
    accountant.conditions = ["epochs", "once"]
    assert "each record was in at most 1 of the 1 steps" in " ".join(accountant.bound(1e-5).assumptions)


def test_add_remove_has_a_bound_where_the_divisor_is_public() -> None:
    """Opacus divides the noisy sum by int(n · rate), which one record more may change."""
    accountant = DpassayAccountant()
    accountant.step(noise_multiplier=2.0, sample_rate=0.1)
    at_zero_out = accountant.get_epsilon(1e-5)
    assert 0 < at_zero_out < math.inf
    accountant.adjacency = "add_remove"
    with pytest.warns(UserWarning, match="the divisor of the noisy sum is not known to be public"):
        assert accountant.get_epsilon(1e-5) == math.inf
    accountant.normalizer = "public"
    assert accountant.get_epsilon(1e-5) == at_zero_out


def test_a_rate_above_1_is_one_line() -> None:
    accountant = DpassayAccountant()
    accountant.step(noise_multiplier=1.0, sample_rate=1.5)  # gradient accumulation multiplies the rate
    with pytest.raises(ValueError, match="sample_rate must be between 0 and 1"):
        accountant.get_epsilon(1e-5)

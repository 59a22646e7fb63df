"""The accountant inside a real `PrivacyEngine` that trains: its ε, its checkpoint, and what the command reads there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus_run import BATCH, ROWS, trained

from cupel.jobs.account import account
from cupel.opacus_accountant import CupelAccountant


@pytest.mark.filterwarnings("ignore")
def test_a_private_engine_that_trains_and_its_checkpoint(tmp_path: Path) -> None:
    """ε beside Opacus' own accountants over the same history; the command reads the same number from the checkpoint."""
    engine = PrivacyEngine(accountant="cupel")
    model = trained(engine)
    assert isinstance(engine.accountant, CupelAccountant)
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
    found = account(tmp_path / "checkpoint.pt", delta=1e-5, sampler="poisson", adjacency="add_remove")
    assert min(bound.value for bound in found.bounds if bound.method == "lattice") == epsilon


@pytest.mark.filterwarnings("ignore")
def test_a_shuffled_run_has_no_bound_at_add_remove(tmp_path: Path) -> None:
    """Opacus' accountants answer the same number for it as for Poisson samples."""
    engine = PrivacyEngine(accountant="cupel")
    model = trained(engine, poisson=False)
    accountant = engine.accountant
    assert isinstance(accountant, CupelAccountant)
    as_poisson = engine.get_epsilon(1e-5)
    accountant.sampler = "shuffled"
    assert engine.get_epsilon(1e-5) == math.inf
    accountant.adjacency = "replace_one"
    once_an_epoch = engine.get_epsilon(1e-5)
    assert as_poisson < once_an_epoch < math.inf
    assert accountant.bound(1e-5).interval is None
    engine.save_checkpoint(path=tmp_path / "checkpoint.pt", module=model)
    found = account(tmp_path / "checkpoint.pt", delta=1e-5, sampler="shuffled", adjacency="add_remove")
    assert {bound.value for bound in found.bounds} == {math.inf}


@pytest.mark.filterwarnings("ignore")
def test_a_state_is_loaded_and_noise_is_calibrated() -> None:
    first, second = CupelAccountant(), CupelAccountant()
    for noise in (1.0, 1.0, 2.0):
        first.step(noise_multiplier=noise, sample_rate=0.1)
    assert first.history == [(1.0, 0.1, 2), (2.0, 0.1, 1)]
    second.load_state_dict(first.state_dict())
    assert second.get_epsilon(1e-5) == first.get_epsilon(1e-5) > 0
    asked: dict[str, Any] = {"target_epsilon": 2.0, "target_delta": 1e-5, "sample_rate": 0.01, "steps": 200}
    found = {name: get_noise_multiplier(accountant=name, **asked) for name in ("cupel", "rdp")}
    assert 0.5 < found["cupel"] <= found["rdp"]


def test_a_rate_above_1_is_one_line() -> None:
    accountant = CupelAccountant()
    accountant.step(noise_multiplier=1.0, sample_rate=1.5)  # gradient accumulation multiplies the rate
    with pytest.raises(ValueError, match="sample_rate must be between 0 and 1"):
        accountant.get_epsilon(1e-5)

"""`dpassay compare` on files of other libraries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run
from opacus.accountants import RDPAccountant

HISTORY = {"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state.json").write_text(json.dumps(HISTORY))
    return tmp_path / "state.json"


@pytest.mark.slow
def test_all_accountants_beside_each_other(state: Path) -> None:
    """rdp is that of Opacus, up to its grid of orders."""
    done = run("compare", state, "--delta", 1e-5, "--sampler", "poisson", "--json")
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    rows = {row["method"]: row for row in body["rows"]}
    other = RDPAccountant()
    other.history = [(1.0, 0.01, 500)]
    assert rows["rdp"]["value"] == pytest.approx(other.get_epsilon(1e-5), rel=0.02)
    assert rows["lattice"]["interval"] is not None
    assert any("sampled: poisson, as stated" in item for item in body["assumptions"])


def test_an_event_that_is_worse_than_what_ran_has_no_lower_end(state: Path) -> None:
    asked = ("compare", state, "--delta", 1e-5, "--sampler", "shuffled", "--adjacency", "replace_one", "--json")
    body = json.loads(run(*asked).stdout)
    assert {row["interval"] is None for row in body["rows"]} == {True}
    assert body["adjacency"] == "replace_one"


def test_wrong_statements_are_one_line(state: Path) -> None:
    done = run("compare", state, "--delta", 1e-5, "--sampler", "often")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1

"""A statement that contradicts a file of another library is refused: by `account`, `gate` and in a declared claim."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import run
from contradictions import FILES, ROWS, Row
from scipy import optimize, special

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.interop.read import read_state
from dpassay.base.errors import InputError
from dpassay.generators.declared.claim import DeclaredClaim
from dpassay.generators.registry import read_claim
from dpassay.jobs.account import account
from dpassay.jobs.gate import Policy, gate

DELTA = 1e-6


def identity(row: Row) -> str:
    return f"{row.library}-{row.field}-{row.agrees}"


def written(folder: Path, row: Row) -> Path:
    (folder / "file").write_text(row.content)
    return folder / "file"


def parts_of(path: Path, words: dict[str, Any]) -> Any:
    """The parts of a claim that names the file, with the statements; relation and unit are by default its own."""
    state = read_state(path)
    part = {key: words[key] for key in ("sampler", "records", "normalizer") if key in words}
    body: dict[str, Any] = {
        "name": "elsewhere",
        "mechanism": "declared",
        "adjacency": words.get("adjacency", str(state.adjacency or Adjacency.ZERO_OUT)),
        "unit": words.get("unit", str(state.unit or "record")),
        "parameters": {"events": [{"file": path.name} | part]},
        "guarantee": {"type": "approx_dp", "epsilon": 3.0, "delta": DELTA},
    }
    (path.parent / "claim.yaml").write_text(yaml.safe_dump(body))
    claim = read_claim(path.parent / "claim.yaml")
    assert isinstance(claim, DeclaredClaim)
    return claim.read_parts()


def gated(path: Path, words: dict[str, Any]) -> None:
    others = {key: value for key, value in words.items() if key not in ("unit", "adjacency")}
    policy = Policy(1e6, DELTA, unit=words.get("unit"), adjacency=words.get("adjacency"))
    gate([path], policy, assume=True, **others)


@pytest.mark.grid
@pytest.mark.parametrize("row", ROWS, ids=identity)
def test_what_agrees_is_accepted(tmp_path: Path, row: Row) -> None:
    path = written(tmp_path, row)
    words = row.given(row.agrees)
    assert account(path, delta=DELTA, method="lattice", **words).bounds
    gated(path, words)
    (part,) = parts_of(path, words)
    assert part.event


@pytest.mark.grid
@pytest.mark.parametrize("row", ROWS, ids=identity)
def test_what_contradicts_is_refused(tmp_path: Path, row: Row) -> None:
    """In one line that names the file and both values, before anything is computed."""
    path = written(tmp_path, row)
    for value in row.contradicts:
        words = row.given(value)
        for refuse in (lambda: account(path, delta=DELTA, **words), lambda: gated(path, words)):  # noqa: B023
            with pytest.raises(InputError, match=f"the file says {row.statement} ") as error:
                refuse()
            assert str(path) in str(error.value)
            assert f"not {value}" in str(error.value)
            assert "\n" not in str(error.value)
        with pytest.raises(InputError, match=r"^[^\n]*parameters.events.0: (the file says|its unit is) "):
            parts_of(path, words)


USERS = FILES / "tensorflow-privacy-users.txt"


@pytest.mark.parametrize(
    "words", [("account", USERS), ("gate", USERS, "--max-epsilon", 3, "--assume")], ids=["account", "gate"]
)
def test_a_statement_about_examples_is_none_about_users(words: tuple[Any, ...]) -> None:
    """The file states ε = 11.783 for users of at most 5 examples; at ε = 3 nothing may be said to hold for them."""
    given = ("--delta", DELTA, "--sampler", "poisson", "--adjacency", "add_remove", "--normalizer", "public")
    done = run(*words, *given, "--unit", "user")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert "the file says unit record, not user" in line
    assert run(*words, *given, "--unit", "record").returncode == 0


def test_a_group_of_examples_contradicts_no_statement_about_examples(tmp_path: Path) -> None:
    """Every step with every example: five examples as one cost five times the μ of one. By the closed form of μ-GDP."""
    text = USERS.read_text().replace("256 examples per", "60000 examples per")
    (tmp_path / "file").write_text(text)
    given: dict[str, Any] = {"delta": DELTA, "adjacency": "zero_out", "method": "gdp"}
    item, five = (account(tmp_path / "file", unit=unit, **given) for unit in ("record", "group(5)"))
    assert (str(item.unit), str(five.unit)) == ("record", "group(5)")
    for result, size in ((item, 1), (five, 5)):
        (bound,) = result.bounds
        assert bound.value == pytest.approx(epsilon_of(size * 15**0.5 / 1.1), rel=1e-6)


def epsilon_of(mu: float) -> float:
    """Balle and Wang (2018), the root of the closed form."""

    def excess(at: float) -> float:
        first, second = special.log_ndtr([mu / 2 - at / mu, -mu / 2 - at / mu])
        return math.exp(first) - math.exp(at + second) - DELTA

    return float(optimize.brentq(excess, 1e-3, 600))


def test_a_claim_about_users_is_refused_on_a_statement_about_examples(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(USERS.read_text())
    with pytest.raises(InputError):
        parts_of(tmp_path / "file", {"unit": "user", "sampler": "poisson"})
    done = run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "out", "-q")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert "its unit is record, and that of the claim user" in line
    assert not (tmp_path / "out").exists()

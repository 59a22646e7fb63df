"""`dpassay audit summary`: what was declared of several audits adds up, or each counts at its share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from scipy import stats

import dpassay
from dpassay.audits.statistics import epsilon_one_run, epsilons_one_run
from dpassay.base.errors import InputError
from dpassay.generators.declared.results import AT_ITS_WORD
from dpassay.jobs.audit_summary import OF_ONE, shares


def test_what_fits_is_left_and_what_does_not_is_divided_as_it_was_declared() -> None:
    assert shares([0.975, 0.975], 0.95) == (0.975, 0.975)
    assert shares([0.99], 0.95) == (0.99,)
    assert shares([0.95, 0.95], 0.95) == pytest.approx((0.975, 0.975))
    assert shares([0.9, 0.98], 0.95) == pytest.approx((1 - 0.05 / 0.12 * 0.1, 1 - 0.05 / 0.12 * 0.02))
    for declared in ([0.95] * 7, [0.9, 0.99, 0.5], [0.999]):
        assert sum(1 - level for level in shares(declared, 0.95)) <= 0.05 + 1e-12


@pytest.mark.parametrize("declared", [(0.9, 0.9), (0.8, 0.95), (0.95, 0.95)])
def test_several_audits_together_accuse_an_honest_mechanism_at_most_so_often(declared: tuple[float, float]) -> None:
    """2000 generators with ε = 1 exactly (randomised response), two audits each, a page at confidence .9. Valid bounds
    fail this with probability at most 1e-4."""
    levels = shares(declared, 0.9)
    right = np.random.default_rng(1).binomial(100, np.e / (1 + np.e), (2, 2000))
    tables = [epsilons_one_run(100, 100, np.arange(101), delta=0.0, confidence=level) for level in levels]
    wrong = (tables[0][right[0]] > 1) | (tables[1][right[1]] > 1)
    assert 0 < int(wrong.sum()) <= stats.binom.isf(1e-4, 2000, 0.1)


def signals(path: Path, seed: int, shift: float = 3.0, rows: int = 200) -> Path:
    """Signals of candidates that fair coins put in; those of members are larger by `shift`."""
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 2, rows)
    lines = [f"{rng.normal() + shift * coin!r},{coin}" for coin in coins.tolist()]
    path.write_text("\n".join(["target,included", *lines]) + "\n")
    return path


def membership(folder: Path, seed: int, confidence: float = 0.95, name: str = "", **more: Any) -> Path:
    output = folder / f"membership-{name or seed}.json"
    given = {"coins": True, "epsilon": 1.0, "confidence": confidence, "guesses": (50, 100), **more}
    dpassay.audit.membership(signals(folder / f"{seed}.csv", seed), output=output, **given)
    return output


def table(folder: Path, confidence: float = 0.95) -> Path:
    """A table of which a fifth of the source is copied."""
    rng = np.random.default_rng(5)
    rows = [f"{a:.6f},{b:.6f},c{c}" for a, b, c in zip(*rng.random((2, 200)), rng.integers(0, 4, 200), strict=True)]
    coins = rng.integers(0, 2, 200) == 1
    seen = [row for row, coin in zip(rows, coins, strict=True) if coin]
    made = {"seen": seen, "unseen": [row for row, coin in zip(rows, coins, strict=True) if not coin]}
    made["synthetic"] = seen[:40] + [f"{a:.6f},{b:.6f},c0" for a, b in rng.random((60, 2))]
    for name, side in made.items():
        (folder / f"{name}.csv").write_text("\n".join(["a,b,c", *side]) + "\n")
    output = folder / "table.json"
    files: dict[str, Any] = {"source": folder / "seen.csv", "holdout": folder / "unseen.csv"}
    options: dict[str, Any] = {"coins": True, "epsilon": 1.0, "confidence": confidence, "link": ["a"], "secret": "c"}
    dpassay.audit.table(folder / "synthetic.csv", **files, **options, output=output)
    return output


def bounds(path: Path) -> list[float]:
    return [bound["value"] for audit in json.loads(path.read_text())["audits"] for bound in audit["bounds"]]


def test_audits_that_add_up_keep_their_bounds(tmp_path: Path) -> None:
    paths = [membership(tmp_path, 1, 0.975), membership(tmp_path, 2, 0.975)]
    made = dpassay.audit.summary(paths, output=tmp_path / "summary")
    assert [bound.value for every in made.bounds for bound in every] == [bounds(path)[0] for path in paths]
    assert made.document.plan.joint == pytest.approx(0.95)
    assert not made.document.widened
    assert made.refuted
    assert "which refutes the claim of ε = 1" in made.document.audit.conclusion
    assert json.loads((tmp_path / "summary" / "summary.json").read_text()) == made.to_json()
    for name in ("summary.json", "summary.html"):
        assert (tmp_path / "summary" / name).stat().st_mode & 0o777 == 0o600
    assumed = made.document.audit.bounds[0].assumptions
    assert assumed[-2:] == (AT_ITS_WORD, OF_ONE)


def test_audits_that_do_not_add_up_count_as_if_less_had_been_asked(tmp_path: Path) -> None:
    """The oracle: the same audits, made at the confidence at which they count."""
    paths = [membership(tmp_path, 1), table(tmp_path), membership(tmp_path, 2, 0.9)]
    made = dpassay.audit.summary(paths, output=tmp_path / "summary")
    level = [1 - error * 0.05 / 0.2 for error in (0.05, 0.05, 0.1)]
    assert made.counted == pytest.approx(level)
    again = [membership(tmp_path, 1, level[0]), table(tmp_path, level[1]), membership(tmp_path, 2, level[2])]
    expected = [value for path in again for value in bounds(path)]
    assert [bound.value for every in made.bounds for bound in every] == pytest.approx(expected, abs=1e-9)
    assert len(expected) == 7
    joint = sum(1 - (bound.confidence or 0) for every in made.bounds for bound in every)
    assert joint <= 0.05 + 1e-12
    assert made.document.widened
    assert made.document.plan.declared == pytest.approx(0.8)


def canaries(folder: Path, **more: Any) -> Path:
    """A planned audit by canaries, of which the synthetic file repeats half of the planted ones."""
    like = folder / "notes.jsonl"
    like.write_text("".join(json.dumps({"text": f"note {i} of a day"}) + "\n" for i in range(50)))
    planned = dpassay.audit.canaries(folder / "audit", kind="key", like=like, canaries=200, epsilon=1.0, **more)
    texts = (folder / "audit" / planned.plan.canaries).read_text().splitlines()
    (folder / "synthetic.jsonl").write_text("\n".join(texts[: len(texts) // 2]) + "\n")
    dpassay.audit.score_canaries(folder / "audit", folder / "synthetic.jsonl")
    dpassay.audit.bound_canaries(folder / "audit")
    return folder / "audit"


def test_a_folder_is_computed_again_from_its_scores(tmp_path: Path) -> None:
    folder, other = canaries(tmp_path), membership(tmp_path, 1)
    made = dpassay.audit.summary([folder, other], output=tmp_path / "summary")
    stated = json.loads((folder / "bound.json").read_text())["audit"]
    planted, holdout = stated["rates"][:2]
    right, guesses = planted["hits"], planted["hits"] + holdout["hits"]
    expected = epsilon_one_run(200, guesses, right, delta=0.0, confidence=0.975, rule="adaptive").value
    (bound,) = made.bounds[0]
    assert bound.value == pytest.approx(expected, abs=1e-9)
    assert bound.value < stated["bounds"][0]["value"]
    assert AT_ITS_WORD not in bound.assumptions


def test_the_command(tmp_path: Path) -> None:
    paths = [membership(tmp_path, 1), membership(tmp_path, 2)]
    shown = run("audit", "summary", *paths, "-o", tmp_path / "out")
    assert shown.returncode == 1, shown.stderr
    assert "confidence 0.95 was declared, 0.975 counts" in " ".join(shown.stdout.split())
    assert (tmp_path / "out" / "summary.html").is_file()
    blind = membership(tmp_path, 3, name="blind", coins=False, epsilon=None)
    nothing = run("audit", "summary", blind, "-o", tmp_path / "out2", "--json")
    assert nothing.returncode == 4, nothing.stderr
    assert json.loads(nothing.stdout)["refuted"] is None


def refused(*audits: Path, output: Path) -> str:
    with pytest.raises(InputError) as error:
        dpassay.audit.summary(audits, output=output)
    assert not (output / "summary.html").exists()
    return str(error.value)


def test_what_cannot_be_summarised(tmp_path: Path) -> None:
    one, out = membership(tmp_path, 1), tmp_path / "out"
    assert "is named twice" in refused(one, one, output=out)
    other = membership(tmp_path, 2, epsilon=2.0)
    assert "summarise audits of one claim" in refused(one, other, output=out)
    group = membership(tmp_path, 2, name="group", unit="group(2)")
    assert "summarise audits of one unit and one adjacency" in refused(one, group, output=out)
    assert "there is no audit to summarise" in refused(output=out)
    assert "holds no planned audit" in refused(tmp_path, output=out)
    assert "cannot be read" in refused(tmp_path / "none.json", output=out)
    changed = json.loads(one.read_text())
    changed["audits"][0]["bounds"][0]["value"] = 3.0
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    assert "its bounds are not what its counts show" in refused(tmp_path / "changed.json", output=out)
    (tmp_path / "bound.json").write_text(json.dumps({**changed, "plan_sha256": ""}))
    assert "is the bound of a planned audit; name its folder" in refused(tmp_path / "bound.json", output=out)
    (tmp_path / "other.json").write_text("{}")
    assert "is no result of `dpassay audit table`" in refused(tmp_path / "other.json", output=out)
    del changed["confidence"]
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    assert "was not written by this version" in refused(tmp_path / "changed.json", output=out)
    assert str(one) in refused(one, output=one)


def test_an_output_in_a_released_folder_is_refused(tmp_path: Path) -> None:
    one, out = membership(tmp_path, 1), tmp_path / "out"
    out.mkdir()
    (out / "claim.json").write_text("{}")
    assert "lies in a released folder" in refused(one, output=out)


def test_many_runs_are_computed_again_from_their_rounds(tmp_path: Path) -> None:
    """A generator that copies its input, beside an audit of membership: the bound is lower than by itself."""
    like = tmp_path / "like.csv"
    rng = np.random.default_rng(9)
    like.write_text("\n".join(["a,b", *(f"{a},c{b}" for a, b in rng.integers(0, 5, (30, 2)))]) + "\n")
    dpassay.audit.runs(tmp_path / "runs", like=like, runs=40, epsilon=1.0)
    dpassay.audit.make_runs(tmp_path / "runs", command="cp {input} {output}")
    alone = dpassay.audit.bound_runs(tmp_path / "runs")
    made = dpassay.audit.summary([tmp_path / "runs", membership(tmp_path, 1)], output=tmp_path / "summary")
    (bound,), (stated,) = made.bounds[0], alone.audit.bounds
    assert bound.confidence == pytest.approx(0.975)
    assert 0 < bound.value < stated.value
    assert "many runs" in made.document.parts[0].kind

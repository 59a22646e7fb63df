"""The front door for Python: names, typed results, errors, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

import dpassay
from dpassay.accounting.bounds import Bound

ROOT = Path(__file__).resolve().parents[2]
LIGHT = "import sys, dpassay; loaded = {'torch', 'transformers', 'numpy', 'pydantic', 'scipy'} & set(sys.modules); "


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_dpassay_loads_nothing_heavy() -> None:
    assert python(LIGHT + "print(loaded)") == "set()"
    assert (
        python(
            LIGHT.replace("import sys, dpassay", "import sys, dpassay; dpassay.read_claim, dpassay.assay")
            + ("print('torch' in sys.modules, 'transformers' in sys.modules)")
        )
        == "False False"
    )


def test_every_public_name_is_there() -> None:
    for name in dpassay.__all__:  # type: ignore[attr-defined]
        assert getattr(dpassay, name) is not None, name
    public = set(dpassay.__all__)  # type: ignore[attr-defined]
    assert public >= {"assay", "generate", "account", "compare", "calibrate", "release", "read_claim"}
    with pytest.raises(AttributeError):
        dpassay.assays  # type: ignore[attr-defined]  # noqa: B018


def test_names_of_a_job_are_not_hidden_by_its_module() -> None:
    """`dpassay.jobs.assay` is a module and `dpassay.assay` a function, in whatever order they are imported."""
    assert python("import dpassay.jobs.assay, dpassay; print(callable(dpassay.assay))") == "True"
    assert (
        python("import dpassay; dpassay.assay; import dpassay.jobs.assay as m; print(m.__name__)")
        == "dpassay.jobs.assay"
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dpassay.jobs.assay.AssayResult:
    claim = dpassay.make_claim(
        {
            "name": "small",
            "data": {"source": "builtin", "name": "keys"},
            "mechanism": "private_inference",
            "parameters": {
                "aggregate": "mean",
                "clip": 4.0,
                "temperature": 2.0,
                "batch_size": 8,
                "records_per_context": 1,
                "tokens": 8,
            },
            "public": {"records": 16, "labels": ["key"], "context_tokens": 26},
            "guarantee": {"type": "pure_dp", "epsilon": 50.0},
        }
    )
    return dpassay.assay(claim, tmp_path_factory.mktemp("api") / "out", device="cpu")


def test_an_assay_has_typed_results(result: dpassay.jobs.assay.AssayResult) -> None:
    assert result.verdict == "SUPPORTED"
    assert isinstance(result.best_upper, Bound)
    assert result.best_upper.value <= 50
    assert result.best_lower is None
    assert result.best_upper in result.bounds
    assert result.report.is_file()
    assert result.to_json()["verdict"] == "SUPPORTED"
    page = result._repr_html_()
    assert "<table>" in page
    assert "do not release" in page


def test_a_report_is_drawn_again(result: dpassay.jobs.assay.AssayResult) -> None:
    drawn = result.report.read_text()
    result.report.unlink()
    again = dpassay.report(result.folder)
    assert again.verdict == result.verdict
    assert result.report.read_text() == drawn


def test_ledgers_are_verified_and_accounted_for(result: dpassay.jobs.assay.AssayResult) -> None:
    path = result.folder / "private" / "ledger.sqlite"
    state = dpassay.verify_ledger(path)
    assert state.head == result.document.ledger.head
    assert dpassay.verify_ledger(str(path), expect=state.head).entries == state.entries
    with pytest.raises(dpassay.DpassayError, match="that of no entry"):
        dpassay.verify_ledger(path, expect="f" * 64)
    outcome = dpassay.account(path)
    assert outcome.bounds
    assert "<table>" in outcome._repr_html_()


def test_a_claim_is_read_or_made_and_a_mistake_is_an_error_of_dpassay(tmp_path: Path) -> None:
    claim = dpassay.read_claim(str(ROOT / "examples" / "claims" / "keys-median.yaml"))
    assert claim.name == "keys-median"
    with pytest.raises(dpassay.DpassayError, match="mechanism: must be") as error:
        dpassay.make_claim({"name": "x", "mechanism": "magic"})
    assert isinstance(error.value, ValueError)
    with pytest.raises(dpassay.InputError, match=r"none\.yaml"):
        dpassay.read_claim(tmp_path / "none.yaml")


def test_comparisons_and_calibrations_are_at_hand() -> None:
    event = SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)), 100)
    compared = dpassay.compare(event, adjacency="add_remove", delta=1e-5, methods=["lattice", "rdp"])
    assert {row.bound.method for row in compared.rows} == {"lattice", "rdp"}
    outcome = dpassay.calibrate(
        lambda value: GaussianDpEvent(value),
        dpassay.accounting.ApproxDP(1.0, 1e-5),
        adjacency="add_remove",
        decreasing=True,
        bracket=(0.1, 100.0),
    )
    assert outcome.bound.value <= 1.0

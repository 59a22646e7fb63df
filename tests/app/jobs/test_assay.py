"""The whole job: each kind of claim comes out as it must, and the numbers of a report agree with one another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from dp_accounting import NoOpDpEvent
from printed_numbers import two_forms

from dpassay.accounting import Adjacency, account
from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.events import BoundedRangeSelectionDpEvent
from dpassay.accounting.guarantees import PureDP
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.attacks.private_inference.leave_one_out import Loss
from dpassay.audits.result import AuditResult
from dpassay.cli.app import run_command
from dpassay.cli.exit_codes import ExitCode
from dpassay.data.records import Record
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.private_inference import audits as evidence
from dpassay.generators.registry import read_claim
from dpassay.jobs import assay
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.reports.assay import Assay, json_schema, load
from dpassay.reports.html import render
from dpassay.testing import assertions

CLAIMS = Path(__file__).resolve().parents[3] / "examples" / "claims"

SMALL = """
name: small
data: {source: builtin, name: keys}
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 31, tokens: 24, prefix: "My 5-digit key is "}
public: {records: 124, labels: [key], context_tokens: 26}
guarantee: {type: ex_post, epsilon: 1000.0}
audits: [leave_one_out, reconstruction]
"""


def claim_file(folder: Path, text: str = SMALL) -> Path:
    path = folder / "claim.yaml"
    path.write_text(text)
    return path


def released_page(done: Assay) -> str:
    """The page that may leave, without what tells one assay of a run from the next."""
    page = render(done, side="release").replace(done.ledger.head, "head")
    return re.sub(r"\d+ \w+ \d{4}, \d\d:\d\d UTC", "then", page)


@pytest.mark.slow
@pytest.mark.parametrize("clip", ["10.0", "4.0, center: public"])
def test_median_loss_exact_cost_and_published_cost_are_in_order_in_every_batch(clip: str, tmp_path: Path) -> None:
    claim = read_claim(claim_file(tmp_path, SMALL.replace("10.0", clip)))
    mechanism = claim.generator()
    assert isinstance(mechanism, PrivateInference)
    assert mechanism.center == ("public" if "public" in clip else None)
    done = assay.assay(claim, tmp_path / "out").document
    assert done.verdict == "SUPPORTED"
    assert done.verdict_is_private
    assert len(done.batches) == 4
    for batch in done.batches:
        # Each number is rounded to float64 after at most 24 additions.
        assert batch.leave_one_out <= batch.epsilon + 1e-9
        rounding = 2 * batch.tokens * mechanism.rounding  # of the laws that are drawn from, which the papers leave out
        assert batch.epsilon <= batch.epsilon_published + rounding + 1e-9
        assert batch.tokens == 24
    ex_post = next(bound for bound in done.bounds if bound.method == "ex_post")
    assert ex_post.value == pytest.approx(max(batch.epsilon for batch in done.batches), abs=1e-9)
    assert sum(row.count for row in done.tokens) == 4 * 24
    reconstruction = next(audit for audit in done.audits if audit.name == "reconstruction")
    assert reconstruction.controls_passed is True
    written = json.loads((tmp_path / "out/private/assay.json").read_text())
    jsonschema.validate(written, json_schema())
    assert not (tmp_path / "out/release").exists(), "only dpassay release makes what may leave"
    page = render(done, side="release")
    assert "verdict withheld" in page
    assert "SUPPORTED:" not in page


@pytest.mark.slow
def test_unprotected_is_refuted_by_both_audits(tmp_path: Path) -> None:
    text = (CLAIMS / "keys-unprotected.yaml").read_text().replace("records: 1024", "records: 256")
    done = assay.assay(read_claim(claim_file(tmp_path, text)), tmp_path / "out").document
    assert done.verdict == "REFUTED"
    above = {
        bound.method: bound.rigor for bound in done.bounds if bound.direction == "lower" and float(bound.value) > 3
    }
    assert above.pop("leave_one_out_rerun") == "estimate"
    assert above == {"one_run_adaptive": "finite_sample", "leave_one_out": "certified"}
    assert done.best_lower is not None
    assert done.best_lower.method in above
    assert (tmp_path / "out/private/synthetic.jsonl").exists()
    assert not done.protected


def test_mean_plan_is_the_published_accounting(tmp_path: Path) -> None:
    # Clustering paper, Table 10, Mean Baseline on AGNews: n = 373, s = 64, c = 9, τ = 1.5 and N = 108000 give 9.985061.
    text = (
        SMALL.replace("name: keys", "name: notes")
        .replace("context_tokens: 26", "context_tokens: 80")
        .replace("records: 124", "records: 108000")
    )
    start, end = text.index("parameters: {"), text.index("public:")
    mean = "parameters: {aggregate: mean, center: none, clip: 9.0, temperature: 1.5, batch_size: 64, tokens: 373}\n"
    mechanism = read_claim(claim_file(tmp_path, text[:start] + mean + text[end:])).generator()
    assert isinstance(mechanism, PrivateInference)
    plan = mechanism.plan()
    bound = account(plan, method="zcdp", adjacency=Adjacency.ADD_REMOVE, delta=108000**-1.1)
    assert bound.value == pytest.approx(9.985061, abs=1e-6)


@pytest.mark.parametrize(
    "architecture", [pytest.param(name, marks=pytest.mark.slow) for name in ("llama", "gemma2", "gemma3", "qwen2")]
)
def test_other_architectures_run_through(architecture: str, make_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", architecture)
    text = SMALL.replace("batch_size: 31", "batch_size: 7").replace("records: 124", "records: 28")
    text = text.replace("context_tokens: 26", "context_tokens: 64")  # their tokens are bytes
    done = assay.assay(
        read_claim(claim_file(tmp_path, text)), tmp_path / "out", model=str(folder), device="cpu"
    ).document
    assert done.verdict == "SUPPORTED"
    assert done.ledger.planned
    reconstruction = next(audit for audit in done.audits if audit.name == "reconstruction")
    # Random weights copy nothing, so the positive control must fail and no conclusion may be drawn.
    assert reconstruction.controls_passed is False
    assert reconstruction.conclusion.startswith("No conclusion")


@pytest.mark.slow
def test_canaries_are_put_among_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "GAME_CANDIDATES", 128)
    monkeypatch.setattr(evidence, "CONTROL_CANDIDATES", 64)  # the control runs at the model's whole length
    text = (
        SMALL.replace("name: keys", "name: notes")
        .replace("context_tokens: 26", "context_tokens: 80")
        .replace("[key]", "[]")
        .replace("tokens: 24", "tokens: 12")
    )
    done = assay.assay(read_claim(claim_file(tmp_path, text)), tmp_path / "out").document
    reconstruction = next(audit for audit in done.audits if audit.name == "reconstruction")
    assert reconstruction.trials == evidence.GAME_CANDIDATES
    assert sum(rate.trials for rate in reconstruction.rates) == evidence.GAME_CANDIDATES, "in the data or held out"
    assert reconstruction.controls_passed is True
    assert done.ledger.planned, "the game has a ledger of its own and charges nothing to the claimed run"


@pytest.mark.slow
def test_recorded_noise_is_told(tmp_path: Path) -> None:
    claim = read_claim(claim_file(tmp_path))
    runs = [assertions.recorded_run(claim, tmp_path / str(i), seed=7) for i in range(2)]
    for run in runs:
        assert run.documents_path.parent.name == "private"
        with Ledger.open(run.ledger_path, read_only=True) as ledger:
            assert ledger.run(claim.name).about["noise"] == "recorded"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("keys-median", "SUPPORTED"),
        ("notes-median", "SUPPORTED"),
        ("notes-centred", "SUPPORTED"),
        ("keys-mean", "SUPPORTED"),
        ("keys-mean-understated", "UNPROVEN"),
        ("keys-unprotected", "REFUTED"),
        ("secrets-evolution", "SUPPORTED"),
        ("notes-aug-pe", "SUPPORTED"),
    ],
)
def test_shipped_claims_come_out_as_the_readme_says(name: str, verdict: str, tmp_path: Path) -> None:
    done = assay.assay(read_claim(CLAIMS / f"{name}.yaml"), tmp_path).document
    assert done.verdict == verdict, done.sentence
    assert bool(done.risks) == (name in ("notes-centred", "keys-mean", "keys-mean-understated", "notes-aug-pe"))
    if name == "keys-mean":
        certified = {bound.method: bound.value for bound in done.bounds if bound.rigor == "certified"}
        assert done.best_upper is not None
        assert done.best_upper.method == min(certified, key=lambda method: certified[method]) == "lattice"
    assert done.ledger.planned
    reconstruction = next((audit for audit in done.audits if audit.name == "reconstruction"), None)
    if reconstruction is None:
        return
    assert reconstruction.controls_passed is True
    asked = next(rate for rate in reconstruction.controls if "reproduced" in rate.name)
    assert asked.rate >= 0.9
    difference = reconstruction.difference
    assert difference is not None
    if name == "keys-unprotected":
        assert difference.lower > 0
    else:
        # False alarm: at most 1 in 20 for each protected claim, because the interval has confidence 95%; the two
        # Clopper–Pearson intervals that it combines make it far less.
        assert 0 in difference


@pytest.mark.grid
@pytest.mark.parametrize(
    ("adjacency", "parameters"),
    [
        ("add_remove", "{aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 31, tokens: 8}"),
        ("replace_one", "{aggregate: mean, clip: 10.0, temperature: 1.2, batch_size: 31, tokens: 8}"),
    ],
)
def test_a_run_keeps_to_its_events_on_neighbours(adjacency: str, parameters: str, tmp_path: Path) -> None:
    text = f"""
name: replayed
data: {{source: builtin, name: keys}}
adjacency: {adjacency}
mechanism: private_inference
parameters: {parameters}
public: {{records: 62, labels: [key], context_tokens: 26}}
guarantee: {{type: pure_dp, epsilon: 1000.0}}
audits: [record_replay]
"""
    done = assay.assay(read_claim(claim_file(tmp_path, text)), tmp_path / "out").document
    assert done.verdict == "SUPPORTED"
    (replayed,) = done.audits
    assert replayed.trials == (2 if adjacency == "add_remove" else 1) * evidence.REPLAYED
    assert replayed.conclusion.startswith("Every event held")


def test_a_run_that_breaks_its_events_supports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had less been charged for a token, the verdict would not be SUPPORTED; the releasable page stays the same."""
    text = SMALL.replace("[leave_one_out, reconstruction]", "[record_replay]").replace("ex_post", "pure_dp")
    text = text.replace("median", "mean").replace("tokens: 24", "tokens: 3")
    pages = []
    for name, words in (("whole", "Every event held"), ("less", "An event of the run does not hold: range")):
        if name == "less":
            monkeypatch.setattr("dpassay.audits.games.replay.private_inference._Audit._eta", lambda self: 1e-6)
        done = assay.assay(read_claim(claim_file(tmp_path, text)), tmp_path / "out").document
        assert done.verdict == {"whole": "SUPPORTED", "less": "UNPROVEN"}[name]
        assert done.audits[0].conclusion.startswith(words)
        pages.append(released_page(done))
    assert pages[0] == pages[1]


@pytest.mark.grid
@pytest.mark.parametrize("guarantee", ["{type: ex_post, epsilon: 1000.0}", "{type: pure_dp, epsilon: 100000.0}"])
def test_a_larger_loss_than_the_proof_allows_leaves_the_claim_unproven(
    guarantee: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record taken out of the whole pipeline, with a loss of 1 above the run's ex-post ε; ε* of a pure claim, too."""
    text = SMALL.replace("[leave_one_out, reconstruction]", "[leave_one_out]").replace("tokens: 24", "tokens: 6")
    text = text.replace("{type: ex_post, epsilon: 1000.0}", guarantee)
    claim = read_claim(claim_file(tmp_path, text))
    whole = assay.assay(claim, tmp_path / "out").document
    assert (whole.verdict, whole.contradictions) == ("SUPPORTED", [])
    assert two_forms(render(whole, side="private"), random=True) == []
    page = released_page(whole)
    realised = max(batch.epsilon for batch in whole.batches)
    for loss, verdict in ((0.999 * realised, "SUPPORTED"), (-realised - 1, "UNPROVEN")):
        monkeypatch.setattr(evidence, "reruns", lambda *_, value=loss: [Loss(value, 1e-9)])
        done = assay.assay(claim, tmp_path / "out").document
        assert done.verdict == verdict
        assert released_page(done) == page
    assert done.best_upper is None
    (sentence,) = done.contradictions
    assert "taken out of the whole pipeline" in sentence
    assert "above the certified ex-post ε of the run" in sentence
    certified = {bound.method for bound in done.bounds if bound.direction == "upper" and bound.rigor == "certified"}
    assert certified == {bound.method for bound in whole.bounds if bound.direction == "upper"}, "kept as they are"
    private = (tmp_path / "out" / "private" / "report.html").read_text()
    assert "Evidence contradicts these bounds" in private


@pytest.mark.slow
def test_a_mechanism_whose_event_is_too_small_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At δ > 0, by the command: the range of a token is charged as a thousandth of what it is."""
    text = SMALL.replace("[leave_one_out, reconstruction]", "[leave_one_out]").replace("median", "mean")
    text = text.replace("tokens: 24", "tokens: 6")
    text = text.replace("{type: ex_post, epsilon: 1000.0}", "{type: approx_dp, epsilon: 1000.0, delta: 1.0e-5}")
    path = claim_file(tmp_path, text)
    assert run_command(["assay", str(path), "-o", str(tmp_path / "whole"), "-q"]) == ExitCode.DONE
    whole = PrivateInference.token_event
    monkeypatch.setattr(
        PrivateInference, "token_event", lambda self: BoundedRangeSelectionDpEvent(whole(self).eta / 1000)
    )
    assert run_command(["assay", str(path), "-o", str(tmp_path / "less")]) == ExitCode.UNPROVEN
    assert "UNPROVEN: " in capsys.readouterr().out
    done = load(tmp_path / "less" / "private" / "assay.json")
    assert done.best_upper is None
    assert all("above the certified pure ε of the charged events" in sentence for sentence in done.contradictions)
    assert len(done.contradictions) == 2


class AnyRun:
    """What `worst_verdict` asks of a run."""

    adjacency, unit = Adjacency.ADD_REMOVE, Unit()


def test_evidence_against_the_events_counts_against_every_part() -> None:
    proof = Bound(Direction.UPPER, 0.5, "basic", Rigor.CERTIFIED, Adjacency.ADD_REMOVE)
    parts = [BoundedGuarantee(PureDP(epsilon), NoOpDpEvent(), [proof]) for epsilon in (1.0, 2.0)]
    seen = AuditResult(
        name="leave_one_out",
        game="",
        attack="",
        statistics=(),
        conclusion="",
        trials=1,
        contradictions=("a loss of 9 was seen",),
    )
    quiet = AuditResult(name="leave_one_out", game="", attack="", statistics=(), conclusion="", trials=1)
    run: Any = AnyRun()
    assert assay.worst_verdict(run, parts, assay.Evidence([quiet], 0.975, [])).name == "SUPPORTED"
    verdict = assay.worst_verdict(run, parts, assay.Evidence([quiet, seen], 0.975, []))
    assert (verdict.name, verdict.best_upper) == ("UNPROVEN", None)
    assert verdict.contradictions == ("a loss of 9 was seen",)
    assert parts[0].bounds == [proof], "the document keeps the bounds as they are"


def test_neighbours_are_neighbours(tmp_path: Path) -> None:
    """Of every unit, and with copies that are no longer what they were copied from."""
    records = [Record(str(i), f"text {i}", None, f"user {i // 2}", "h") for i in range(10)]
    for unit, size in (("record", 1), ("user", 2)):
        others = evidence.replay_neighbors(records, Unit(unit), Adjacency.ADD_REMOVE)
        assert [len(other) - 10 for other in others] == [-size, size] * evidence.REPLAYED
        for other in evidence.replay_neighbors(records, Unit(unit), Adjacency.REPLACE_ONE):
            assert len(other) == 10
            assert len(set(other) & set(records)) == 10 - size
            new = set(other) - set(records)
            assert len({record.user for record in new}) == 1
            assert not {record.user for record in new} & {record.user for record in records}

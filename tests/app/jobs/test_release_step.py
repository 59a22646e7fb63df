"""From a finished run to a folder that may leave, through the real command: what is released, and what never is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import command
import pyarrow.parquet
import pytest
from whole_documents import every_document_ends

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.events import compose
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.audits.result import AuditResult
from dpassay.audits.verdict import ALLOWED_ERROR
from dpassay.base.errors import InputError
from dpassay.generators import registry
from dpassay.generators.base import FinishedRun
from dpassay.generators.private_inference import audits
from dpassay.generators.registry import read_claim
from dpassay.jobs import assay
from dpassay.jobs import release as release_step
from dpassay.reports.release import Release
from dpassay.testing import assertions

CLAIM = """
name: small
data: {source: file, path: notes.jsonl, id: id}
mechanism: private_inference
parameters: {aggregate: mean, clip: 10.0, temperature: 1.2, batch_size: 7, tokens: 6}
public: {records: 28, context_tokens: 48}
guarantee: {type: pure_dp, epsilon: 1000.0}
audits: [record_replay]
"""
EX_POST = CLAIM.replace("mean", "median").replace("pure_dp, epsilon: 1000.0", "ex_post, epsilon: 1e-9")
OF_THE_DOCUMENTS = {"synthetic.jsonl", "synthetic.parquet", "batching-key.txt", "claim.json"}
PAGES = {"report.html", "report.json", "certificate.json", "opendp-registry.yaml", "nist-sp-800-226.md"}
"""Each is about the run and its ledger, which another release makes longer."""
FILES = OF_THE_DOCUMENTS | PAGES
STATE = "XDG_STATE_HOME"


def write(folder: Path, text: str = CLAIM) -> Path:
    rows = [{"id": i, "text": f"zqprivate{i} is a note of the day"} for i in range(28)]
    (folder / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "claim.yaml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module", autouse=True)
def whole_documents() -> Iterator[None]:
    with every_document_ends():
        yield


@pytest.fixture(scope="module", autouse=True)
def one_neighbour() -> Iterator[None]:
    """What record and replay says matters here, not on how many neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audits, "REPLAYED", 1)
        yield


@dataclasses.dataclass(frozen=True)
class Finished:
    """A folder with a claim, its run in `run`, and the anchor of its ledger in a state folder of its own."""

    folder: Path

    @property
    def claim(self) -> Path:
        return self.folder / "claim.yaml"

    @property
    def private(self) -> Path:
        return self.folder / "run" / "private"

    @property
    def ledger(self) -> Path:
        return self.private / "ledger.sqlite"

    def edit(self, old: str, new: str) -> None:
        text = self.claim.read_text()
        assert old in text
        self.claim.write_text(text.replace(old, new))

    def assay(self, *options: object) -> command.Result:
        return command.run("assay", self.claim, "-o", self.folder / "run", "--json", "-q", *options)

    def verdict(self) -> dict[str, Any]:
        result = self.assay()
        assert result.stdout, result.stderr
        outcome: dict[str, Any] = json.loads(result.stdout)
        return outcome

    def release(self, *options: object, output: str = "out") -> command.Result:
        return command.run("release", self.folder / "run", "-o", self.folder / output, *options)

    def refused(self, says: str, *options: object, output: str = "out") -> None:
        """One line and exit code 2, and nothing is left of a release, in the folder or in the ledger."""
        before = sorted(self.folder.iterdir())
        result = self.release(*options, output=output)
        one_line(result, says)
        assert sorted(self.folder.iterdir()) == before

    def page(self, output: str = "out") -> str:
        return (self.folder / output / "report.html").read_text(encoding="utf-8")

    def releases(self) -> list[dict[str, Any]]:
        with Ledger.open(self.ledger, read_only=True) as ledger:
            return ledger.run("small").releases()


def one_line(result: command.Result, says: str) -> None:
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert command.plain(result.stderr).startswith("dpassay: ")
    assert says in command.plain(result.stderr)
    assert "zqprivate" not in result.stderr


def made(folder: Path, text: str, *names: str) -> None:
    """Runs commands on a claim, in this folder and with this folder's anchors."""
    write(folder, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE, str(folder / "state"))
        for name in names:
            result = command.run(name, folder / "claim.yaml", "-o", folder / "run", "-q")
            assert result.returncode in (0, 4), result.stderr


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, tuple[str, ...]], Path]:
    """Finished runs, each made once."""
    known: dict[tuple[str, tuple[str, ...]], Path] = {}

    def template(text: str, names: tuple[str, ...]) -> Path:
        if (text, names) not in known:
            folder = tmp_path_factory.mktemp("template")
            made(folder, text, *names)
            known[text, names] = folder
        return known[text, names]

    return template


@pytest.fixture
def finish(
    templates: Callable[[str, tuple[str, ...]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Finished]:
    """A copy of a finished run, which a test may do with as it likes."""

    def finish(text: str = CLAIM, *names: str) -> Finished:
        folder = tmp_path / "case"
        shutil.copytree(templates(text, names or ("assay",)), folder)
        monkeypatch.setenv(STATE, str(folder / "state"))
        return Finished(folder)

    return finish


@pytest.fixture
def case(finish: Callable[..., Finished]) -> Finished:
    """A claim that the proof reaches, assayed."""
    return finish()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_release_holds_what_the_ledger_committed_and_nothing_else(case: Finished) -> None:
    result = case.release("--json")
    assert result.returncode == 0, result.stderr
    told, out = json.loads(result.stdout), case.folder / "out"
    assert {path.name for path in out.iterdir()} == FILES
    assert told["files"] == {path.name: sha256(path) for path in out.iterdir()}
    assert (told["accepted"], told["anchored"], told["run"]) == (None, True, "small")
    for name in ("synthetic.jsonl", "synthetic.parquet", "batching-key.txt"):
        assert (out / name).read_bytes() == (case.private / name).read_bytes()
    rows = [json.loads(line) for line in (out / "synthetic.jsonl").read_text().splitlines()]
    assert pyarrow.parquet.read_table(out / "synthetic.parquet").to_pylist() == rows
    (recorded,) = case.releases()
    assert recorded["files"] == told["files"]
    with Ledger.open(case.ledger, read_only=True) as ledger:
        assert ledger.verify(expected_head=told["head"]) != told["head"], "the release is an entry after that head"
    assert not [path for path in out.rglob("*") if path.stat().st_mode & 0o044 != 0o044], "everyone may read it"


def test_both_pages_name_the_files_that_they_belong_to(case: Finished) -> None:
    assert case.release().returncode == 0
    digests = json.loads((case.private / "assay.json").read_text())["digests"]
    out = case.folder / "out"
    assert digests == {"documents": sha256(out / "synthetic.jsonl"), "claim": sha256(out / "claim.json")}
    for page in (case.page(), (case.private / "report.html").read_text()):
        assert digests["documents"] in page
        assert digests["claim"] in page


def test_the_released_claim_is_canonical_and_tells_of_no_file(case: Finished) -> None:
    assert case.release().returncode == 0
    text = (case.folder / "out" / "claim.json").read_text()
    body = json.loads(text)
    assert text == json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n"
    assert body["guarantee"] == {"type": "pure_dp", "epsilon": 1000.0}
    assert "notes" not in text


def test_a_released_page_holds_nothing_private(case: Finished) -> None:
    assert case.release().returncode == 0
    page = case.page()
    for word in ("zqprivate", str(case.folder), "notes.jsonl", "SUPPORTED", "UNPROVEN", "REFUTED", "Verdicts on this"):
        assert word not in page
    assert release_step.RELEASED in " ".join(page.replace("\u00a0", " ").split())


def test_a_second_release_and_another_verdict_are_fine(case: Finished) -> None:
    assert case.release().returncode == 0
    assert case.release(output="again").returncode == 0
    for name in OF_THE_DOCUMENTS:
        assert sha256(case.folder / "out" / name) == sha256(case.folder / "again" / name)
    assert len(case.releases()) == 2
    assert len(case.verdict()["history"]) == 2
    assert case.release(output="third").returncode == 0


@pytest.mark.grid
@pytest.mark.parametrize("name", ["synthetic.jsonl", "synthetic.parquet", "batching-key.txt"])
def test_an_edited_file_is_not_released_and_is_written_anew(name: str, case: Finished) -> None:
    path = case.private / name
    whole = path.read_bytes()
    path.write_bytes(b'{"slot": 0, "label": null, "text": "zqprivate0"}\n')
    assert case.release().returncode == 0
    assert (case.folder / "out" / name).read_bytes() == whole
    assert case.assay().returncode == 0
    assert path.read_bytes() == whole


def test_an_edited_report_decides_nothing(case: Finished) -> None:
    for name in ("assay.json", "report.html"):
        (case.private / name).write_text("zqprivate")
    assert case.release().returncode == 0
    assert "zqprivate" not in case.page()


def forge(ledger: Path, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the last entry of a kind, as whoever can write the file can."""
    with sqlite3.connect(ledger) as database:
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        seq, text = database.execute(
            "SELECT seq, body FROM entries WHERE kind = ? ORDER BY seq DESC LIMIT 1", (kind,)
        ).fetchone()
        body = json.loads(text)
        change(body)
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        database.execute("UPDATE entries SET body = ? WHERE seq = ?", (text, seq))
        for _, sql in triggers:
            database.execute(sql)
    database.close()


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("commit", lambda body: body["value"].update(rows=[[0, None, "zqprivate0"]])),
        ("begin", lambda body: body["about"].update(key="00" * 32)),
        ("verdict", lambda body: body["verdict"].update(verdict="SUPPORTED", contradictions=[], audits=[])),
    ],
    ids=["documents", "key", "verdict"],
)
def test_an_edited_ledger_is_refused(kind: str, change: Callable[[dict[str, Any]], None], case: Finished) -> None:
    forge(case.ledger, kind, change)
    case.refused("ledger.sqlite: entry ")
    one_line(case.assay(), "ledger.sqlite: entry ")


def test_a_ledger_that_was_further_on_is_refused(finish: Callable[..., Finished]) -> None:
    """Without its last verdict, a ledger is a whole chain still: only the anchor shows what is missing."""
    case = finish(CLAIM, "generate")
    older = case.ledger.read_bytes()
    assert case.assay().returncode == 0
    case.ledger.write_bytes(older)
    case.refused("had more entries before")
    for name in ("assay", "generate"):
        result = command.run(name, case.claim, "-o", case.folder / "run", "-q")
        one_line(result, "had more entries before")


def test_an_anchor_of_ones_own_is_kept_and_compared(finish: Callable[..., Finished]) -> None:
    case = finish(CLAIM, "generate")
    anchor, other = case.folder / "anchor.json", case.folder / "other.json"
    older = case.ledger.read_bytes()
    assert case.assay("--anchor", anchor).returncode == 0
    newer = case.ledger.read_bytes()
    shutil.rmtree(case.folder / "state")
    other.write_text("{}\n")
    case.refused("has no head of", "--anchor", other)
    case.ledger.write_bytes(older)
    case.refused("had more entries before", "--anchor", anchor)
    case.ledger.write_bytes(newer)
    result = case.release("--anchor", anchor, "--json")
    assert json.loads(result.stdout)["anchored"] is True


def test_what_is_not_anchored_is_told(case: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    anchored = "A copy of the head is kept outside of this folder and was compared"
    assert anchored in (case.private / "report.html").read_text()
    shutil.rmtree(case.folder / "state")
    (case.folder / "state").write_text("a file in place of a folder")
    assert case.verdict()["ledger"]["anchored"] is False
    assert anchored not in (case.private / "report.html").read_text()
    assert "No anchor of this ledger was found" in case.release().stdout


def test_without_a_verdict_there_is_no_release(finish: Callable[..., Finished]) -> None:
    finish(CLAIM, "generate").refused("has no verdict yet; run dpassay assay first", "--accept", "It is urgent.")


def test_without_a_run_there_is_no_release(tmp_path: Path) -> None:
    one_line(command.run("release", tmp_path, "-o", tmp_path / "out"), "holds no run")


def test_an_unfinished_run_is_not_released(case: Finished) -> None:
    with Ledger.open(case.ledger) as ledger:
        run = ledger.run("small")
        ledger.begin("other", plan=run.plan, adjacency=run.adjacency, unit=run.unit, about={"noise": "os"})
    case.refused("holds 'small', 'other'; name one with --run")
    case.refused("is not finished", "--run", "other")
    case.refused("no run 'third'", "--run", "third")
    assert case.release("--run", "small").returncode == 0


def test_recorded_noise_is_never_released(tmp_path: Path) -> None:
    claim = write(tmp_path)
    assertions.recorded_run(read_claim(claim), tmp_path / "run", seed=7)
    result = command.run("release", tmp_path / "run", "-o", tmp_path / "out", "--accept", "It is a test.")
    one_line(result, "its noise was recorded")
    assert not (tmp_path / "out").exists()


def test_documents_that_an_earlier_version_did_not_commit_are_not_released(case: Finished) -> None:
    case.ledger.unlink()
    with Ledger.open(case.ledger) as ledger:
        ledger.begin("small", plan=compose([]), about={"noise": "os"}, **relation()).finish()
    case.refused("did not commit documents")


def relation() -> dict[str, Any]:
    return {"adjacency": Adjacency.ADD_REMOVE, "unit": Unit()}


@pytest.mark.parametrize("kind", ["a file in it", "a file", "a link", "the private folder", "the run's own folder"])
def test_a_place_that_is_taken_is_refused(kind: str, case: Finished) -> None:
    out = case.folder / "out"
    says = "exists and is not empty"
    output = "out"
    if kind == "a file in it":
        out.mkdir()
        (out / "mine.txt").write_text("mine")
    elif kind == "a file":
        out.write_text("mine")
        says = "is a file, but the output is a folder"
    elif kind == "a link":
        out.symlink_to(case.folder / "elsewhere")
    elif kind == "the private folder":
        output, says = "run/private/out", "lies in the private folder"
    else:
        output, says = "run", "is what the command reads"
    before = len(case.releases())
    case.refused(says, output=output)
    assert len(case.releases()) == before


def test_an_empty_folder_is_filled(case: Finished) -> None:
    (case.folder / "out").mkdir()
    assert case.release().returncode == 0
    assert {path.name for path in (case.folder / "out").iterdir()} == FILES


@pytest.mark.parametrize("after_the_ledger", [False, True])
def test_what_fails_half_way_leaves_nothing_half_written(
    after_the_ledger: bool, case: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        if after_the_ledger:
            patch.setattr(Path, "rename", _full)
        else:
            patch.setattr("dpassay.jobs.release.render_release", _full)
        case.refused("no space left on device")
    assert len(case.releases()) == after_the_ledger
    assert case.release().returncode == 0
    assert len(case.releases()) == after_the_ledger + 1


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_release_that_is_killed_before_its_folder_has_a_name_is_in_the_ledger(case: Finished) -> None:
    code = (
        "import os, sys, pathlib, dpassay.cli.app\n"
        "pathlib.Path.rename = lambda *_: os._exit(9)\n"
        f"dpassay.cli.app.run_command(['release', {str(case.folder / 'run')!r}, '-o', {str(case.folder / 'out')!r}])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert not (case.folder / "out").exists()
    assert len(case.releases()) == 1, "never a released folder that the ledger knows nothing of"
    assert case.release().returncode == 0
    assert {path.name for path in (case.folder / "out").iterdir()} == FILES


UNDERSTATED = CLAIM.replace("1000.0", "0.5")
REASON = "Agreed by the board; ε ≈ 40 is <enough> for these notes."


def test_a_public_shortfall_needs_a_reason_which_is_printed(finish: Callable[..., Finished]) -> None:
    case = finish(UNDERSTATED)
    case.refused("is above the claim. To release it all the same, say why with --accept")
    for reason in ("", "  ", "x" * 501, "bell \x07"):
        case.refused("--accept: must be a reason", "--accept", reason)
    result = case.release("--accept", REASON, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["accepted"] == REASON
    page = case.page().replace("\u00a0", " ")
    assert "“Agreed by the board; ε ≈ 40 is &lt;enough&gt; for these notes.”" in page
    assert "is above the claim" in page
    (recorded,) = case.releases()
    assert recorded["accepted"] == REASON
    assert recorded["shortfalls"]


def test_nothing_is_accepted_where_nothing_falls_short(case: Finished) -> None:
    case.refused("there is nothing to accept", "--accept", REASON)


def test_an_ex_post_claim_is_released_whatever_its_verdict(finish: Callable[..., Finished]) -> None:
    """Its verdict reads the private data. This one is not met, and neither the release nor its page say so."""
    case = finish(EX_POST)
    assert json.loads((case.private / "assay.json").read_text())["verdict"] == "UNPROVEN"
    assert case.release().returncode == 0
    assert "ex-post claim: verdict withheld" in case.page()
    assert "UNPROVEN" not in case.page()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("aggregate: mean", "aggregate: none", "protects nothing with these parameters"),
        ("mechanism: private", "variant: as_published\nmechanism: private", "follows the published steps"),
    ],
)
def test_what_protects_nothing_needs_a_reason(old: str, new: str, says: str, finish: Callable[..., Finished]) -> None:
    assert old in CLAIM
    case = finish(CLAIM.replace(old, new).replace("audits: [record_replay]", "audits: []"))
    case.refused(says)
    assert case.release("--accept", REASON).returncode == 0
    assert says in case.page()


def test_a_shortfall_is_read_off_public_facts_alone() -> None:
    """`Release` has no verdict and no audit's result, and the gate is given nothing else of an assay."""
    assert not {"verdict", "best_lower", "contradictions", "history"} & set(Release.model_fields)


BROKEN = "dpassay.audits.games.replay.private_inference._Audit._eta"


def test_leaving_audits_out_does_not_make_a_contradicted_claim_supported(
    finish: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does another guarantee: what an audit once saw of a run counts for all later verdicts on it."""
    case = finish(CLAIM, "generate")
    with monkeypatch.context() as patch:
        patch.setattr(BROKEN, lambda self: 1e-6)  # had less been charged for a token
        first = case.verdict()
    assert first["verdict"] == "UNPROVEN"
    assert first["contradictions"]
    case.edit("audits: [record_replay]", "audits: []")
    second = case.verdict()
    assert second["verdict"] == "UNPROVEN"
    assert second["contradictions"] == first["contradictions"]
    case.edit("epsilon: 1000.0", "epsilon: 5000.0")
    assert case.verdict()["verdict"] == "UNPROVEN"
    case.edit("type: pure_dp, epsilon: 5000.0", "type: approx_dp, epsilon: 5000.0, delta: 0.001")
    last = case.verdict()
    assert last["verdict"] == "UNPROVEN"
    assert [past["asked"] for past in last["history"]] == [["record_replay"], [], [], []]
    assert [past["verdict"] for past in last["history"]] == ["UNPROVEN"] * 4
    case.refused("an audit contradicted the run's own events", "--accept", REASON)
    page = (case.private / "report.html").read_text()
    assert page.count("(ε, δ)-differential privacy with ε\u00a0=\u00a05000") >= 1
    assert "Verdicts on this run" in page


def test_leaving_audits_out_does_not_undo_a_refutation(finish: Callable[..., Finished]) -> None:
    text = CLAIM.replace("aggregate: mean", "aggregate: none").replace("batch_size: 7", "batch_size: 1")
    text = text.replace("1000.0", "0.001")
    case = finish(text.replace("[record_replay]", "[leave_one_out]"), "generate")
    assert case.verdict()["verdict"] == "REFUTED"
    case.edit("[leave_one_out]", "[]")
    again = case.verdict()
    assert again["verdict"] == "REFUTED"
    assert again["audits"] == []
    assert "Bounds of earlier verdicts on this run" in (case.private / "report.html").read_text()
    assert case.release("--accept", REASON).returncode == 0
    assert "No audit was made" not in case.page()
    assert "withheld: they depend on the private data" in case.page()


class Sampled:
    """An audit whose finite-sample bound is ours to choose."""

    def __init__(self, *values: float) -> None:
        self._values = list(values)
        self.asked: list[float] = []

    def __call__(self, confidence: float) -> list[AuditResult]:
        self.asked.append(confidence)
        bound = Bound(
            Direction.LOWER,
            self._values.pop(0),
            "one_run",
            Rigor.FINITE_SAMPLE,
            **relation(),
            delta=0.0,
            confidence=confidence,
            ceiling=2000.0,
            private=True,
        )
        told: dict[str, Any] = {"game": "a game", "attack": "an attack", "statistics": ("a statistic",)}
        return [AuditResult(name="record_replay", conclusion="Played.", trials=9, bounds=(bound,), **told)]


def test_all_audits_of_a_run_share_one_probability_of_error(
    finish: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At .95 each, two of them would hold jointly at .9, and neither could refute anything."""
    case = finish(UNDERSTATED, "generate")
    sampled = Sampled(0.1, 0.2, 0.3, 0.75)
    monkeypatch.setattr(registry, "audit", lambda run, claimed, confidence: sampled(confidence))
    results = [case.verdict() for _ in range(4)]
    assert sampled.asked == [1 - ALLOWED_ERROR / 2**j for j in (1, 2, 3, 4)]
    assert sum(1 - confidence for confidence in sampled.asked) < ALLOWED_ERROR
    assert [item["verdict"] for item in results] == ["UNPROVEN"] * 3 + ["REFUTED"]
    lower = [bound["value"] for bound in results[-1]["bounds"] if bound["direction"] == "lower"]
    assert sorted(lower) == [0.1, 0.2, 0.3, 0.75]


def test_equal_bounds_are_listed_once(finish: Callable[..., Finished]) -> None:
    text = CLAIM.replace("[record_replay]", "[leave_one_out]")
    case = finish(text)
    before = json.loads((case.private / "assay.json").read_text())["bounds"]
    assert [bound for bound in before if bound["direction"] == "lower"]
    assert case.verdict()["bounds"] == before


def test_after_many_verdicts_another_audit_could_show_nothing(case: Finished) -> None:
    with Ledger.open(case.ledger) as ledger:
        run = ledger.run("small")
        (body,) = run.verdicts()
        for _ in range(39):
            run.record_verdict(body)
    one_line(case.assay(), "this run has 40 verdicts")
    case.edit("[record_replay]", "[]")
    assert case.assay().returncode == 0


def test_two_assays_at_once_do_not_share_a_verdict(case: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = registry.audit

    def slow(finished: FinishedRun, part: Any, confidence: float) -> list[AuditResult]:
        with Ledger.open(finished.ledger_path) as ledger:
            run = ledger.run("small")
            run.record_verdict(run.verdicts()[0])
        return audit(finished, part, confidence)

    monkeypatch.setattr(registry, "audit", slow)
    one_line(case.assay(), "another assay of this run ended meanwhile")


def test_a_verdict_is_in_the_ledger_before_it_is_shown(case: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (case.private / "report.html").read_bytes()
    monkeypatch.setattr("dpassay.jobs.assay.record", _full)
    with pytest.raises(InputError, match="no space left"):
        assay.assay(read_claim(case.claim), case.folder / "run")
    assert (case.private / "report.html").read_bytes() == before


KEPT = [
    "synthetic.jsonl",
    "synthetic.parquet",
    "batching-key.txt",
    "cluster-counts.json",
    "assay.json",
    "report.html",
    "candidates.jsonl",
    "canaries.json",
    "audits/canaries.json",
]


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_of_a_run_without_its_ledger_is_refused(name: str, tmp_path: Path) -> None:
    """A new ledger beside it would be charged once for what was released twice."""
    claim, path = write(tmp_path), tmp_path / "run" / "private" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    for job in ("generate", "assay"):
        result = command.run(job, claim, "-o", tmp_path / "run")
        one_line(result, "exists without its ledger")
        assert str(path.parent if "audits" in name else path) in result.stderr
    assert not (tmp_path / "run" / "private" / "ledger.sqlite").exists()
    one_line(command.run("release", tmp_path / "run", "-o", tmp_path / "out"), "holds no run")


def test_a_release_of_an_earlier_version_without_its_ledger_is_refused(tmp_path: Path) -> None:
    claim = write(tmp_path)
    (tmp_path / "run" / "release").mkdir(parents=True)
    (tmp_path / "run" / "release" / "synthetic.jsonl").write_text("{}\n")
    for job in ("generate", "assay"):
        one_line(command.run(job, claim, "-o", tmp_path / "run"), "exists without its ledger")
    assert not (tmp_path / "run" / "private").exists()


def test_a_new_ledger_beside_documents_is_refused(case: Finished) -> None:
    for extra in ("", "-wal", "-shm"):
        case.ledger.with_name(case.ledger.name + extra).unlink(missing_ok=True)
    Ledger.open(case.ledger).close()
    for job in ("generate", "assay"):
        one_line(command.run(job, case.claim, "-o", case.folder / "run"), "is from a finished run")


def test_games_are_not_played_anew_without_their_ledger(finish: Callable[..., Finished]) -> None:
    """Canaries that were kept, and drawn from, belong to the ledger that was charged for it."""
    case = finish(CLAIM, "generate")
    folder = case.private / "audits"
    folder.mkdir()
    (folder / "canaries.json").write_text("{}\n")
    case.edit("[record_replay]", "[reconstruction]")
    one_line(case.assay(), "canaries.json: exists without its ledger")


def test_generate_prints_the_head(finish: Callable[..., Finished]) -> None:
    case = finish(CLAIM, "generate")
    with Ledger.open(case.ledger, read_only=True) as ledger:
        head = ledger.head
    told = command.run("generate", case.claim, "-o", case.folder / "run", "--json")
    summary = json.loads(told.stdout)
    assert (summary["head"], summary["sha256"]) == (head, sha256(case.private / "synthetic.jsonl"))
    assert f"Head of the ledger: {head}" in command.run("generate", case.claim, "-o", case.folder / "run").stdout


def test_help_has_examples() -> None:
    for name, example in (
        ("release", "Example: dpassay release report -o released"),
        ("assay", "Example: dpassay assay examples/claims/keys-median.yaml -o report"),
    ):
        assert example in " ".join(command.run(name, "--help").stdout.split())

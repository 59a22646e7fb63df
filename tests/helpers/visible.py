"""What is visible of a run that may have been killed, against what its ledger committed. Nothing of dpassay is used.

`Visible.check` holds after every kill, and from one kill to the next.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
from ledger_reader import Entry, RunRead, entries, runs

STAGES = {"aug_pe": "votes", "secret_evolution": "release"}

_RESULTS = (
    "synthetic.jsonl",
    "synthetic.parquet",
    "batching-key.txt",
    "cluster-counts.json",
    "vectors.safetensors",
    "marginals.json",
)
_JOURNALS = ("candidates.jsonl", "texts.jsonl", "rows.jsonl")
_PAGES = ("assay.json", "report.html")
_LEFTOVERS = (
    rf"run(/private)?|run/private/(ledger\.sqlite(-wal|-shm)?|{'|'.join(map(re.escape, _JOURNALS))}|lock)",
    r"run/private/\.ledger\.sqlite\.\w{8}\.new(-wal|-shm|-journal)?",
    rf"run/private/({'|'.join(map(re.escape, (*_RESULTS, *_PAGES)))})(\.\d+-[0-9a-f]{{8}}\.partial)?",
    r"run/private/checkpoints(/(checkpoint|first)-\d+\.safetensors(\.\d+-[0-9a-f]{8}\.partial)?)?",
    r"run/private/audits(/[\w.-]+)*|run/private/canaries.json(\.\d+-[0-9a-f]{8}\.partial)?",
    r"out(/[\w.-]+)?|\.out\.[0-9a-f]{8}\.partial(/[\w.-]+)?",
    r"state(/dpassay(/anchors(/[0-9a-f]{64}\.json(\.\d+-[0-9a-f]{8}\.partial)?)?)?)?",
)
"""All that may lie in the folder of a run; what is neither the ledger's nor whole has a name that says so."""


class Visible:
    """A folder in which `dpassay generate`, `assay` and `release` ran, once or often.

    Attributes:
        ledger: its file.
        entries: of the ledger, when it was last checked.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._private, self._given = folder / "run" / "private", set(folder.rglob("*"))
        self.ledger = self._private / "ledger.sqlite"
        self.entries: list[Entry] = []
        self._anchored: dict[str, int] = {}
        self._canaries: dict[Path, str] = {}

    @property
    def run(self) -> RunRead | None:
        """The only run; None before it was begun."""
        results = runs(self.entries)
        assert len(results) <= 1
        return next(iter(results.values()), None)

    def check(self) -> None:
        """Everything that is visible was committed before, and nothing that was committed has changed.

        Raises:
            AssertionError: where it is not so.
        """
        before, self.entries = self.entries, entries(self.ledger)
        assert self.entries[: len(before)] == before, "an entry changed or is gone"
        self._check_names()
        self._check_canaries()
        self._check_anchors()
        run = self.run
        if run is None:
            shown = [path for path in (*self._private.glob("*"), *self._outputs()) if path.name in (*_RESULTS, *_PAGES)]
            assert not shown, "there are results of no run"
            assert not list(self._printed()), "a result of no run was printed"
            return
        self._check_documents(run)
        self._check_candidates(run)
        self._check_checkpoint(run)
        self._check_pages(run)
        self._check_releases(run)
        self._check_printed(run)

    def check_end(self) -> None:
        """The life is at its end: what was charged is what was planned, and all files are there.

        Raises:
            AssertionError: where it is not so.
        """
        self.check()
        run = self.run
        assert run is not None
        assert run.finished
        assert run.whole, "less was charged than planned"
        assert run.verdicts
        assert run.releases
        assert self._anchored[self.entries[0].hash] == len(self.entries)
        there = {path.name for path in self._private.iterdir()}
        assert {"synthetic.jsonl", "synthetic.parquet", *_PAGES} <= there
        assert (self.folder / "out" / "report.html").exists()

    def _outputs(self) -> Iterator[Path]:
        return (self.folder / "out").glob("*")

    def _check_names(self) -> None:
        ours = re.compile("|".join(_LEFTOVERS))
        for path in self.folder.rglob("*"):
            name = str(path.relative_to(self.folder))
            if path in self._given or re.fullmatch(r"printed-\d+(-\d+)?|errors-\d+|points", name):
                continue
            assert ours.fullmatch(name), f"{name} is left"
        assert not self._private.exists() or not self._private.stat().st_mode & 0o077

    def _check_canaries(self) -> None:
        """Those that a run has begun with stay."""
        for file in self._private.rglob("*canaries.json"):
            text = file.read_text()
            assert json.loads(text)
            assert self._canaries.setdefault(file, text) == text, "the canaries of a run changed"

    def _check_anchors(self) -> None:
        """Each is of a ledger that is here, the run's or that of an audit, and not ahead of it."""
        ledgers = {result[0].hash: result for file in self._private.rglob("ledger.sqlite") if (result := entries(file))}
        for result in ledgers.values():
            runs(result)
        for file in (self.folder / "state").rglob("[!.]*.json"):
            ((identity, anchor),) = json.loads(file.read_text()).items()
            assert identity == file.stem
            assert self._anchored.get(identity, 0) <= anchor["entries"] <= len(ledgers[identity]), (
                "the anchor is ahead, or went back"
            )
            assert ledgers[identity][anchor["entries"] - 1].hash == anchor["head"]
            self._anchored[identity] = anchor["entries"]

    def _check_documents(self, run: RunRead) -> None:
        for folder in (self._private, self.folder / "out"):
            there = [folder / name for name in _RESULTS if (folder / name).exists()]
            assert not there or run.finished, "there are results of a run that is not finished"
            for path in there:
                assert self._content(path) == self._committed(run, path.name), f"{path} is not what was committed"

    @staticmethod
    def _content(path: Path) -> Any:
        match path.suffix:
            case ".jsonl":
                text = path.read_text(encoding="utf-8")
                assert not text or text.endswith("\n")
                return [json.loads(line) for line in text.split("\n")[:-1]]
            case ".parquet":
                return pyarrow.parquet.read_table(path).to_pylist()
            case ".json":
                return json.loads(path.read_text())
            case ".safetensors":
                return path.read_bytes()
            case _:
                return path.read_text()

    @staticmethod
    def _committed(run: RunRead, name: str) -> Any:
        match name:
            case "batching-key.txt":
                return f"{run.about['key']}\n"
            case "cluster-counts.json":
                return [run.committed["clusters"]]
            case "marginals.json":
                return json.loads(run.committed["documents/0"]["files"][name])
            case "vectors.safetensors":
                return base64.b64decode(run.committed["documents/0"]["files"][name]["base64"])
            case _:
                return run.documents()

    def _check_candidates(self, run: RunRead) -> None:
        """A candidate of a later round varies what a committed selection chose."""
        journal = next((self._private / name for name in _JOURNALS if (self._private / name).exists()), None)
        if journal is None:
            return
        lines = [json.loads(line) for line in journal.read_bytes().split(b"\n")[1:-1]]
        keys = [(line["label"], line["key"]) for line in lines]
        assert len(set(keys)) == len(keys), "a candidate was written twice"
        stage = STAGES.get(run.about["claim"]["mechanism"])
        if stage is not None:
            selected = run.steps(stage)
            assert all(line["round"] <= selected for line in lines), "a candidate of a selection that was not committed"
            return
        last_step = f"steps/{run.about['claim']['parameters'].get('steps', 0) - 1}"
        for kind, needed in (("negative", "votes"), ("text", "vectors"), ("row", last_step)):
            if any(line["key"].startswith(f"{kind}/") for line in lines):
                assert needed in run.committed, f"a {kind} before the {needed} were committed"

    def _check_checkpoint(self, run: RunRead) -> None:
        """The last committed state of a training is there, and is the one that was committed."""
        if steps := [int(key.split("/")[1]) for key in run.committed if key.startswith("steps/")]:
            content = (self._private / "checkpoints" / f"checkpoint-{max(steps) + 1}.safetensors").read_bytes()
            assert hashlib.sha256(content).hexdigest() == run.committed[f"steps/{max(steps)}"]

    def _check_pages(self, run: RunRead) -> None:
        heads = {entry.hash: entry.body["verdict"] for entry in run.verdicts}
        assay, page = (self._private / name for name in _PAGES)
        if assay.exists():
            self._check_assay(json.loads(assay.read_text()), heads)
        if page.exists():
            text = page.read_text()
            (head,) = {head for head in heads if head in text}
            assert heads[head]["verdict"] in text
            assert text.rstrip().endswith("</html>")

    @staticmethod
    def _check_assay(body: dict[str, Any], heads: dict[str, Any]) -> None:
        recorded = heads[body["ledger"]["head"]]
        assert body["history"][-1] == recorded
        assert body["verdict"] == recorded["verdict"]

    def _check_releases(self, run: RunRead) -> None:
        recorded = [release["files"] for release in run.releases]
        for folder in [self.folder / "out", *self.folder.glob(".out.*.partial")]:
            if folder.exists() and (folder.name == "out" or folder.stat().st_mode & 0o077):
                files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
                assert files in recorded, f"{folder.name} was not recorded, or is half of it"

    def _printed(self) -> Iterator[dict[str, Any]]:
        """What all commands so far printed, whole lines."""
        for path in self.folder.glob("printed-*"):
            yield from map(json.loads, path.read_text().split("\n")[:-1])

    def _check_printed(self, run: RunRead) -> None:
        hashes = {entry.hash for entry in self.entries}
        heads = {entry.hash: entry.body["verdict"] for entry in run.verdicts}
        for line in self._printed():
            if "history" in line:
                self._check_assay(line, heads)
            elif "files" in line:
                assert line["files"] in [release["files"] for release in run.releases]
                assert line["head"] in hashes
            else:
                assert run.finished
                assert line["documents"] == len(run.documents())
                assert line["head"] in hashes

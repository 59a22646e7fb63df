"""The files of an audit of a third party's generator. Each is written atomically, with the hash of its inputs.

The manifest is pre-registered: its SHA-256, kept outside the folder, proves later that no coin was changed. Hashes
inside the folder only detect accidents, since all files there can be rewritten together.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, AliasChoices, Field, FiniteFloat, ValidationError

from dpassay import __version__
from dpassay.accounting.adjacency import SINGLE_UNITS, Unit
from dpassay.attacks.canaries.rows import ColumnRange
from dpassay.attacks.canaries.spelling import Spelling
from dpassay.auditing.canaries.candidate import Canary
from dpassay.auditing.canaries.design import CanariesDesign, Expected
from dpassay.auditing.canaries.kinds import KINDS, CanaryKind
from dpassay.auditing.canaries.scorer import PlannedScorer
from dpassay.auditing.canaries.synthetic import SYNTHETIC
from dpassay.auditing.data import DATA
from dpassay.auditing.files import (
    MANIFEST,
    PLAN,
    SCORES,
    Claimed,
    Part,
    read_json,
    read_sealed,
    version_error,
)
from dpassay.audits.detection import Detectable
from dpassay.audits.verdict import REFUTING_CONFIDENCE, may_refute
from dpassay.base import defaults
from dpassay.base.arrays import Bools
from dpassay.base.errors import InputError, input_errors
from dpassay.base.former_name import FORMER_NAME
from dpassay.base.number_format import format_confidence, format_number, format_upper
from dpassay.data.column_summary import ColumnSummary
from dpassay.data.reader import FOUND, FileOptions


class ScoredFile(Part):
    """A synthetic file, or a language model, that was scored: an entry of ``scores.json``.

    Attributes:
        file: its name.
        path: where it was.
        sha256: its hash, or that of the files of a model.
        bytes, rows: its size.
        candidates: score of each candidate, larger for "in the data".
        never: score of each control candidate, which is in no data.
        copied: score of each candidate if the file also held a copy of every planted canary; empty for a model.
        attack: how a model scored them; empty for a file.
        written: how a file is written, in words; empty for a model.
        understood: what its columns were taken for, for rows.
    """

    file: str
    path: str
    sha256: str
    bytes: int
    rows: int
    candidates: list[FiniteFloat]
    never: list[FiniteFloat]
    copied: list[FiniteFloat]
    attack: str = ""
    written: str = ""
    understood: tuple[ColumnSummary, ...] = ()

    @property
    def about(self) -> dict[str, Any]:
        """The file without its scores, as plain JSON types."""
        return self.model_dump(include={"file", "sha256", "bytes", "rows"})

    def to_json(self) -> dict[str, Any]:
        """The same, and what was understood of its columns."""
        columns = [column.to_json() for column in self.understood]
        return {**self.about, "understood": {"written": {SYNTHETIC: self.written}, "columns": columns}}


class CanaryScores(Part):
    """The content of ``scores.json``.

    Attributes:
        schema_version: of this file; ``schema`` in the file.
        manifest_sha256: hash of the manifest.
        scorings: of planned files and models.
        unprotected: of a run without protection, which is the positive control; None if there is none.
        sha256: of the file.
    """

    schema_version: Literal[1] = Field(1, alias="schema")
    manifest_sha256: str
    scorings: tuple[ScoredFile, ...] = ()
    unprotected: ScoredFile | None = None
    sha256: str = ""

    @property
    def every(self) -> list[ScoredFile]:
        """Those of planned files and of a run without protection."""
        return [*self.scorings, *([self.unprotected] if self.unprotected else [])]


def _single(unit: str) -> str:
    if not Unit.parse(unit).is_single:
        raise ValueError(f"unit must be {SINGLE_UNITS}, not {unit!r}")
    return unit


class Layout(Part):
    """The split of the data's own records, for audits of the same run that compare a source with a holdout.

    A unit is included with probability 2 × the share of the holdout, and then its own fair coin decides whether it is
    in the source or in the holdout. All other records are in the input, without a coin.

    Attributes:
        unit: whose records are on one side, such as ``record`` or ``user``.
        share: of the units that is expected in the holdout.
        records: of the data.
        repeated: records that repeat the content of another; they have no coin.
        source, holdout: records of each side.
        input_sha256, source_sha256, holdout_sha256: hashes of the files.
    """

    unit: Annotated[str, AfterValidator(_single)]
    share: float
    records: int
    repeated: int
    source: int
    holdout: int
    input_sha256: str
    source_sha256: str
    holdout_sha256: str

    @property
    def needs_user(self) -> bool:
        """Whether a column names the user of each record, whose records are on one side."""
        return Unit.parse(self.unit).needs_user


class CanariesPlan(Part):
    """What is fixed before the run, coins included (``private/manifest.json``).

    Attributes:
        schema_version: of this file.
        dpassay: version that planned.
        nonce: random, so that the hash of the manifest does not reveal the coins.
        kind: of the canaries.
        score: how they are scored, for kinds that can be scored in several ways; empty for the default.
        scorer: the language model that scores them; None if none does.
        text: column of the text, for canaries of text.
        columns: of the table, for rows.
        unit, copies: privacy unit of a candidate, and its number of records.
        guesses: number of guesses; None to guess every key that is printed.
        scorings: number of synthetic files and models that may be scored; ``files`` in the file.
        confidence: with which the bounds of all of them hold jointly.
        delta: δ of the bound.
        claim: or None.
        statistic: the rule of the one-run bound.
        candidates: in the order they were drawn.
        included: coin of each candidate, ``1`` for planted.
        never: control candidates, which are in no data.
        layout: the split of the data's own records; None if they were not split.
        joint_confidence: with which the bounds of all audits of a layout hold jointly.
        canaries, canaries_sha256: name and hash of the file of planted canaries.
        reads_data: the data file that canaries were made like; None for none.
        made_up: columns in which canaries have a made-up word, since the data have too many different values.
        like_id: columns that look like ids, if no column of ids was named.
        id, user: columns of the data, where they have them.
        reading: what was stated of how the data are written.
        written: how they are written, in words; empty without data.
        understood: what their columns were taken for; private.
    """

    schema_version: Literal[1] = 1
    dpassay: str = Field(validation_alias=AliasChoices("dpassay", FORMER_NAME))
    nonce: str
    kind: str
    score: str = ""
    scorer: PlannedScorer | None = None
    text: str | None
    columns: list[dict[str, Any]] = Field(default=[])
    unit: str
    copies: int
    guesses: int | None
    scorings: int = Field(alias="files")
    confidence: float
    delta: float
    claim: Claimed | None
    statistic: str
    candidates: list[Canary]
    included: str
    never: list[Canary]
    layout: Layout | None = None
    joint_confidence: float = defaults.CONFIDENCE
    canaries: str = ""
    canaries_sha256: str = ""
    reads_data: str | None = None
    made_up: tuple[str, ...] = ()
    like_id: tuple[str, ...] = ()
    id: str | None = None
    user: str | None = None
    reading: FileOptions = FOUND
    written: str = ""
    understood: tuple[ColumnSummary, ...] = ()

    @property
    def canary_kind(self) -> CanaryKind:
        """The kind of the canaries, with their score."""
        return KINDS[self.kind].scored_by(self.score, self.scorer)

    @property
    def coins(self) -> Bools:
        """Shape (candidates,)."""
        return np.array([coin == "1" for coin in self.included], dtype=np.bool_)

    @property
    def every(self) -> list[Canary]:
        """Candidates, then control candidates."""
        return [*self.candidates, *self.never]

    @property
    def planted(self) -> list[Canary]:
        """The candidates that are in the data."""
        return [canary for canary, coin in zip(self.candidates, self.included, strict=True) if coin == "1"]

    @property
    def design(self) -> CanariesDesign:
        """The design of the audit."""
        return CanariesDesign(
            candidates=len(self.candidates),
            guesses=self.guesses,
            scorings=self.scorings,
            confidence=self.confidence,
            unit=Unit.parse(self.unit),
            claim=None if self.claim is None else self.claim.guarantee,
            delta=self.delta,
        )

    def check(self) -> None:
        """Raises `ValueError`, `TypeError` or `LookupError` if fields are inconsistent."""
        _ = self.design, self.table
        if len(self.included) != len(self.candidates) or set(self.included) - {"0", "1"}:
            raise ValueError("each candidate has one coin")
        positions = ((canary.start, len(canary.text), canary.reference) for canary in self.every)
        if any(not 0 <= start <= length or not math.isfinite(reference) for start, length, reference in positions):
            raise ValueError("each canary has an end and a finite reference")
        if self.canary_kind.of_text and self.text is None:
            raise ValueError("canaries of text have a column")
        kind, columns = self.canary_kind, self.table
        for canary in self.every:
            kind.check(canary, columns)

    @property
    def table(self) -> list[ColumnRange]:
        """The columns of rows."""
        return [_column_range(column) for column in self.columns]


def _column_range(column: dict[str, Any]) -> ColumnRange:
    """A column of a manifest; those of earlier versions do not say how cells are written."""
    lists = {name: tuple(column.get(name, ())) for name in ("values", "unused", "marks")}
    return ColumnRange(**{**column, **lists, "spelling": Spelling(**column.get("spelling", {}))})


@dataclass(frozen=True)
class PlannedCanaries:
    """A planned audit in its folder, and what it can show. Its JSON, ``plan.json``, has no coin and no canary.

    Attributes:
        folder: of the audit.
        plan: what is fixed, coins included; private.
        manifest_sha256: hash of ``private/manifest.json``; proves later that no coin was changed.
    """

    folder: Path
    plan: CanariesPlan = field(repr=False)
    manifest_sha256: str

    @property
    def private(self) -> Path:
        """The private folder."""
        return self.folder / "private"

    @functools.cached_property
    def design(self) -> CanariesDesign:
        """Number of candidates and guesses, unit, claim, confidence."""
        return self.plan.design

    @property
    def canaries(self) -> str:
        """Name of the file of the planted canaries."""
        return self.plan.canaries

    @property
    def input(self) -> str:
        """Name of the file that the generator reads, if the data were split."""
        return f"input{self.suffix}"

    @property
    def suffix(self) -> str:
        """Suffix of the files that the plan wrote, which is that of the data."""
        return self.plan.canaries.removeprefix("canaries")

    @property
    def guesses(self) -> int:
        """The number of guesses; the largest that is possible where it is not fixed."""
        return self.design.candidates // 2 if self.design.guesses is None else self.design.guesses

    @property
    def ceiling(self) -> float:
        """The largest ε that the audit can show: that of `guesses` correct guesses."""
        return self.design.ceiling(self.guesses)

    @property
    def ceiling_of_half(self) -> float:
        """The largest ε that could be shown if half of the candidates were guessed."""
        return self.design.ceiling(self.design.candidates // 2)

    @property
    def guesses_needed(self) -> int | None:
        """The fewest guesses, all correct, that refute the claim; None without a claim, or if no number does."""
        return None if self.design.claimed is None else self.design.needed(self.design.claimed)

    @functools.cached_property
    def expected(self) -> tuple[Expected, ...]:
        """What one file shows of a mechanism exactly at the claim, and of weaker generators."""
        return self.design.expected()

    @functools.cached_property
    def detectable(self) -> Detectable:
        """The leak that one file shows with 50 % power."""
        return self.design.detectable()

    @property
    def ceilings(self) -> tuple[tuple[int, float], ...]:
        """For a number of guesses that depends on the output: some numbers, and what they show if all are right."""
        if self.design.guesses is not None:
            return ()
        numbers = [number for number in (1, 3, 10, 30, 100, 300, 1000) if number < self.guesses]
        return tuple((number, self.design.ceiling(number)) for number in (*numbers, self.guesses))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the audit may show less than expected, one phrase each."""
        results, claim, needed = [], self.design.claim, self.guesses_needed
        if claim is not None and not self.ceiling > claim.epsilon:
            enough = f"{needed} would do" if needed is not None else "plan more canaries"
            results.append(
                f"{self.guesses} guesses, all right, show at most ε = {format_upper(self.ceiling)}: the claim of "
                f"{format_number(claim.epsilon)} could not be refuted ({enough})"
            )
        if self.plan.made_up:
            names = ", ".join(map(repr, self.plan.made_up))
            results.append(f"canaries have a made-up word in {names}: too many different values")
        if self.plan.like_id:
            names = " and ".join(map(repr, self.plan.like_id))
            results.append(f"column {names} looks like an id: name it with --id")
        return tuple(results)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON types; of the layout, what may be known without the coins."""
        plan, design, layout = self.plan, self.design, self.plan.layout
        if layout is not None:
            known = layout.model_dump(include={"unit", "share", "records", "repeated", "input_sha256"})
            known |= {"input": self.input, "confidence": plan.joint_confidence}
        return {
            "schema": 1,
            "dpassay": __version__,
            "kind": plan.kind,
            "score": plan.score or None,
            "scorer": plan.scorer and plan.scorer.model_dump(),
            "canaries": {"file": plan.canaries, "sha256": plan.canaries_sha256},
            "candidates": design.candidates,
            "unit": str(design.unit),
            "copies": plan.copies,
            "adjacency": "add_remove",
            "guesses": design.guesses,
            "scorings": design.scorings,
            "confidence": design.confidence,
            "delta": design.delta,
            "claim": plan.claim and plan.claim.model_dump(),
            "statistic": design.statistic,
            "ceiling": {"guesses": self.guesses, "epsilon": self.ceiling},
            "ceiling_of_half": {"guesses": design.candidates // 2, "epsilon": self.ceiling_of_half},
            "guesses_needed": self.guesses_needed,
            "ceilings": [{"guesses": guesses, "epsilon": epsilon} for guesses, epsilon in self.ceilings],
            "expected": [asdict(item) for item in self.expected],
            "detectable": self.detectable.to_json(),
            "reads_data": plan.reads_data,
            "understood": {
                "written": {DATA: plan.written} if plan.written else {},
                "columns": [column.to_json() for column in plan.understood],
            },
            "warnings": list(self.warnings),
            "manifest_sha256": self.manifest_sha256,
            "claim_in_words": design.claim_in_words(),
            "layout": None if layout is None else known,
        }


def read_plan(folder: Path, expected: str | None = None) -> PlannedCanaries:
    """The plan of a folder.

    Args:
        folder: of the plan.
        expected: the hash that was kept outside.

    Raises:
        InputError: if the folder holds no plan, the manifest is not the one whose hash was recorded or kept, or it
            tests a claim at a confidence at which no claim is refuted.
    """
    path = folder / "private" / MANIFEST
    if not path.is_file():
        if (folder / "private" / PLAN).is_file():
            raise InputError(
                f"{folder}: holds an audit by many runs; give the command with `runs`: dpassay audit runs …"
            )
        raise InputError(f"{folder}: holds no plan; make one with `dpassay audit plan … -o {folder}`")
    with input_errors():
        content = path.read_bytes()
    result = hashlib.sha256(content).hexdigest()
    if expected is not None and expected.strip().lower() != result:
        raise InputError(f"{path}: has SHA-256 {result}, not the expected {expected}: it is another plan's, or changed")
    public = read_json(folder / PLAN)
    if public.get("manifest_sha256") != result:
        raise InputError(f"{path}: was changed since it was planned; its SHA-256 is not the one in {folder / PLAN}")
    try:
        plan = CanariesPlan.model_validate_json(content)
    except ValidationError as error:
        raise version_error(path, error) from None
    if plan.claim is not None and 0 < plan.confidence < 1 and not may_refute(plan.confidence):
        raise InputError(
            f"{path}: tests a claim at confidence {format_confidence(plan.confidence)}, but a claim is refuted at "
            f"{REFUTING_CONFIDENCE} or more; make a new plan"
        )
    try:
        plan.check()
    except (ValueError, TypeError, LookupError):
        raise InputError(f"{path}: was not written by this version of dpassay; make a new plan") from None
    if not plan.canaries_sha256:  # of version 0.2
        planted = public.get("canaries")
        if not isinstance(planted, dict):
            raise InputError(f"{folder / PLAN}: was changed: it does not say which file holds the canaries; restore it")
        plan = plan.model_copy(update={"canaries_sha256": str(planted.get("sha256"))})
    return PlannedCanaries(folder, plan, result)


def read_scores(planned: PlannedCanaries) -> CanaryScores:
    """The content of ``scores.json``.

    Raises:
        InputError: if the file is missing, was changed, or belongs to another manifest or to other canaries.
    """
    folder, path = planned.folder, planned.folder / SCORES
    if not path.is_file():
        raise InputError(f"{folder}: holds no scores; run `dpassay audit score {folder} SYNTHETIC` first")
    document = read_sealed(path)
    if document.get("manifest_sha256") != planned.manifest_sha256:
        raise InputError(f"{path}: was made with another manifest; score again")
    try:
        scores = CanaryScores.model_validate(document)
    except ValidationError as error:
        raise version_error(path, error) from None
    if len({file.sha256 for file in scores.every}) < len(scores.every):
        raise InputError(f"{path}: has one file twice; score again")
    candidates, never = len(planned.plan.candidates), len(planned.plan.never)
    for file in scores.every:
        expected = (candidates, never, 0 if file.attack else candidates)
        if (len(file.candidates), len(file.never), len(file.copied)) != expected:
            raise InputError(f"{path}: has scores of other canaries than the plan; score again")
    return scores

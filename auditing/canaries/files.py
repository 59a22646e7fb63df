"""The files of an audit of a third party's generator. Each is written atomically, with the hash of its inputs.

The manifest is pre-registered: its SHA-256, kept outside the folder, proves later that no coin was changed. Hashes
inside the folder only detect accidents, since all files there can be rewritten together.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, AliasChoices, Field, FiniteFloat, TypeAdapter, ValidationError

from dpassay import __version__
from dpassay.accounting.adjacency import SINGLE_UNITS, Unit
from dpassay.attacks.canaries.rows import ColumnRange
from dpassay.auditing.canaries.kinds import KINDS, Canary, CanaryKind
from dpassay.auditing.canaries.units import claim_in_words
from dpassay.auditing.plan_files import (
    MANIFEST,
    PLAN,
    SCORES,
    Claimed,
    Part,
    guarantee,
    read_json,
    read_sealed,
    version_error,
)
from dpassay.audits.detection import Detectable, detectable
from dpassay.audits.games.canaries_design import CanariesDesign
from dpassay.audits.statistics.power import (
    AsPrinted,
    Leak,
    RandomizedResponse,
    StandOut,
    chance_to_show,
    quantile_shown,
)
from dpassay.audits.verdict import REFUTING_CONFIDENCE, may_refute
from dpassay.base import defaults
from dpassay.base.arrays import Bools
from dpassay.base.errors import InputError, input_errors
from dpassay.base.former_name import FORMER_NAME
from dpassay.base.number_format import format_confidence, format_number, format_percent, format_upper


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

    def belongs_to(self, manifest: Manifest) -> bool:
        """Whether there is a score for each canary of the plan."""
        copied = 0 if self.attack else len(manifest.candidates)
        planned = (len(manifest.candidates), len(manifest.never), copied)
        return (len(self.candidates), len(self.never), len(self.copied)) == planned


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


class Manifest(Part):
    """What is fixed before the run, coins included.

    Attributes:
        schema_version: of this file.
        dpassay: version that planned.
        nonce: random, so that the hash of the manifest does not reveal the coins.
        kind: of the canaries.
        score: how they are scored, for kinds that can be scored in several ways; empty for the default.
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
    """

    schema_version: Literal[1] = 1
    dpassay: str = Field(validation_alias=AliasChoices("dpassay", FORMER_NAME))
    nonce: str
    kind: str
    score: str = ""
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

    @property
    def canary_kind(self) -> CanaryKind:
        """The kind of the canaries, with their score."""
        return KINDS[self.kind].scored_by(self.score)

    @property
    def coins(self) -> Bools:
        """Shape (candidates,)."""
        return np.array([coin == "1" for coin in self.included], dtype=np.bool_)

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
            claim=guarantee(self.claim.epsilon, self.claim.delta) if self.claim else None,
            delta=self.delta,
        )

    def check(self) -> None:
        """Raises `ValueError`, `TypeError` or `LookupError` if fields are inconsistent."""
        _ = self.design, self.table
        if len(self.included) != len(self.candidates) or set(self.included) - {"0", "1"}:
            raise ValueError("each candidate has one coin")
        every = (*self.candidates, *self.never)
        if any(not 0 <= canary.start <= len(canary.text) or not math.isfinite(canary.reference) for canary in every):
            raise ValueError("each canary has an end and a finite reference")
        if self.canary_kind.of_text and self.text is None:
            raise ValueError("canaries of text have a column")
        kind, columns = self.canary_kind, self.table
        for canary in every:
            kind.check(canary, columns)

    @property
    def table(self) -> list[ColumnRange]:
        """The columns of rows."""
        return [
            ColumnRange(**{**column, **{name: tuple(column.get(name, ())) for name in ("values", "unused")}})
            for column in self.columns
        ]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What one file of a planned audit shows of a generator.

    Attributes:
        generator: what it does, in words.
        chance: the probability that the bound is above the claim, or above 0 if there is none.
        median: of the bound.
        low, high: its quantiles at 5% and 95%; None where they are not computed.
    """

    generator: str
    chance: float
    median: float
    low: float | None
    high: float | None


_WEAKER = (1, 2, 4)
"""By how many times the expected generators exceed the claimed ε, the claim itself first."""
_SHARES = (0.01, 0.1, 1.0)
"""The shares of their records, or of the canaries if these are no single records, that other generators copy."""


@dataclass(frozen=True, kw_only=True)
class PlannedCanaries:
    """A planned audit: what is fixed, and what it can show. Its JSON, ``plan.json``, has no coin and no canary.

    Attributes:
        manifest: what is fixed, coins included; private.
        manifest_sha256: its hash; proves later that no coin was changed.
        canaries: name of the file of planted canaries.
        canaries_sha256: its hash.
        reads_data: the data file that canaries were made like; None for none.
        made_up: columns in which canaries have a made-up word, since the data have too many different values.
        like_id: columns that look like ids, if no column of ids was named.
        columns: text, user and id of the data, where they have them.
        total: confidence with which the bounds of all audits of a layout hold jointly.
    """

    manifest: Manifest = field(repr=False)
    manifest_sha256: str
    canaries: str
    canaries_sha256: str
    reads_data: Path | None
    made_up: tuple[str, ...] = ()
    like_id: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    total: float = defaults.CONFIDENCE

    @functools.cached_property
    def design(self) -> CanariesDesign:
        """Number of candidates and guesses, unit, claim, confidence."""
        return self.manifest.design

    @property
    def layout(self) -> Layout | None:
        """The split of the data; None for none."""
        return self.manifest.layout

    @property
    def input(self) -> str:
        """Name of the file that the generator reads, if the data were split."""
        return f"input{Path(self.canaries).suffix}"

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
        return None if self.design.claim is None else self.design.needed(self.design.claim.epsilon)

    @functools.cached_property
    def expected(self) -> tuple[Expected, ...]:
        """What one file shows of a mechanism exactly at the claim, and of weaker generators; computed, not simulated.

        Without a claim, mechanisms with ε = 1, 2 and 4 stand in the place of the claim and its multiples.
        """
        claim = self.design.claim
        results = []
        for times in _WEAKER:
            epsilon = times * (1.0 if claim is None else float(claim.epsilon))
            exactly = f"exactly ε = {format_number(epsilon)}"
            if claim is not None:
                exactly = "exactly the claimed ε" if times == 1 else f"{times} times the claimed ε"
            results.append(self._expected(f"has {exactly}", RandomizedResponse(epsilon)))
            if epsilon == 0:
                break
        for share in _SHARES:
            # A group, or a user, is copied in part with a larger probability than each of its records.
            whose = "its records" if self.design.unit == Unit() else "the canaries"
            copies = "every record" if share == 1 else f"{format_percent(share)} of {whose}"
            results.append(self._expected(f"copies {copies} verbatim", StandOut(share)))
        return tuple(results)

    def _expected(self, generator: str, leak: Leak) -> Expected:
        design = self.design
        claimed = 0.0 if design.claim is None else float(design.claim.epsilon)
        chance = chance_to_show(design.test, leak, claimed, confidence=design.each, delta=design.delta)
        slow = isinstance(design.test, AsPrinted) and isinstance(leak, RandomizedResponse)
        median, low, high = (
            None
            if slow and at != 0.5
            else quantile_shown(design.test, leak, at, confidence=design.each, delta=design.delta)
            for at in (0.5, 0.05, 0.95)
        )
        assert median is not None
        return Expected(generator=generator, chance=chance, median=median, low=low, high=high)

    @functools.cached_property
    def detectable(self) -> Detectable:
        """The leak that one file shows with 50 % power."""
        design = self.design
        claim = None if design.claim is None else float(design.claim.epsilon)
        return detectable(design.test, claim, confidence=design.each, delta=design.delta)

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
        if self.made_up:
            names = ", ".join(map(repr, self.made_up))
            results.append(f"canaries have a made-up word in {names}: too many different values")
        if self.like_id:
            names = " and ".join(map(repr, self.like_id))
            results.append(f"column {names} looks like an id: name it with --id")
        return tuple(results)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON types."""
        design, claim = self.design, self.design.claim
        return {
            "schema": 1,
            "dpassay": __version__,
            "kind": self.manifest.kind,
            "score": self.manifest.score or None,
            "canaries": {"file": self.canaries, "sha256": self.canaries_sha256},
            "candidates": design.candidates,
            "unit": str(design.unit),
            "copies": self.manifest.copies,
            "adjacency": "add_remove",
            "guesses": design.guesses,
            "scorings": design.scorings,
            "confidence": design.confidence,
            "delta": design.delta,
            "claim": None if claim is None else {"epsilon": float(claim.epsilon), "delta": float(design.delta)},
            "statistic": statistic(design),
            "ceiling": {"guesses": self.guesses, "epsilon": self.ceiling},
            "ceiling_of_half": {"guesses": design.candidates // 2, "epsilon": self.ceiling_of_half},
            "guesses_needed": self.guesses_needed,
            "ceilings": [{"guesses": guesses, "epsilon": epsilon} for guesses, epsilon in self.ceilings],
            "expected": [asdict(item) for item in self.expected],
            "detectable": self.detectable.to_json(),
            "reads_data": None if self.reads_data is None else str(self.reads_data),
            "warnings": list(self.warnings),
            "manifest_sha256": self.manifest_sha256,
            "claim_in_words": claim_in_words(claim, design.unit),
            "layout": None if self.layout is None else self._layout_json(self.layout),
        }

    def _layout_json(self, layout: Layout) -> dict[str, Any]:
        """What may be known of the layout without the coins."""
        known = layout.model_dump(include={"unit", "share", "records", "repeated", "input_sha256"})
        return {**known, "input": self.input, "confidence": self.total}


def statistic(design: CanariesDesign) -> str:
    """The name of the statistic that bounds ε, as the manifest and reports print it."""
    return f"one_run_{design.rule}"


def read_manifest(folder: Path, expected: str | None = None) -> tuple[Manifest, str]:
    """The manifest of a plan and its SHA-256.

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
    if read_json(folder / PLAN).get("manifest_sha256") != result:
        raise InputError(f"{path}: was changed since it was planned; its SHA-256 is not the one in {folder / PLAN}")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        raise version_error(path, error) from None
    if manifest.claim is not None and 0 < manifest.confidence < 1 and not may_refute(manifest.confidence):
        raise InputError(
            f"{path}: tests a claim at confidence {format_confidence(manifest.confidence)}, but a claim is refuted at "
            f"{REFUTING_CONFIDENCE} or more; make a new plan"
        )
    try:
        manifest.check()
        return manifest, result
    except (ValueError, TypeError, LookupError):
        raise InputError(f"{path}: was not written by this version of dpassay; make a new plan") from None


def read_scores(folder: Path, manifest_sha256: str) -> dict[str, Any]:
    """The content of ``scores.json`` for this manifest: ``scorings`` of planned files, and one ``unprotected`` or None.

    Raises:
        InputError: if the file is missing, was changed, or belongs to another manifest.
    """
    path = folder / SCORES
    if not path.is_file():
        raise InputError(f"{folder}: holds no scores; run `dpassay audit score {folder} SYNTHETIC` first")
    document = read_sealed(path)
    if document.get("manifest_sha256") != manifest_sha256:
        raise InputError(f"{path}: was made with another manifest; score again")
    try:
        TypeAdapter(list[ScoredFile]).validate_python(document.get("scorings"))
        TypeAdapter(ScoredFile | None).validate_python(document.get("unprotected"))
    except ValidationError as error:
        raise version_error(path, error) from None
    return document

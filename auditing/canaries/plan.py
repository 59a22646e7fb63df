"""Plans an audit of a third party's generator: draws canaries and coins, and writes files for the owner of the data."""

from __future__ import annotations

import dataclasses
import json
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpassay import __version__
from dpassay.accounting.adjacency import SINGLE_UNITS, Unit
from dpassay.attacks.canaries import texts as text_canaries
from dpassay.attacks.canaries.rows import draw_rows
from dpassay.auditing.canaries.files import Manifest, PlannedAudit, statistic
from dpassay.auditing.canaries.kinds import KINDS, Canary, CanaryKind
from dpassay.auditing.canaries.layout import Split, audits_of, each_confidence, write_layout
from dpassay.auditing.canaries.readme import readme
from dpassay.auditing.data import Data, read_data, whole_column, write_rows
from dpassay.auditing.plan_files import MANIFEST, PLAN, Claimed, guarantee, hashed
from dpassay.audits.games.canaries_design import CanariesDesign
from dpassay.audits.verdict import check_confidence
from dpassay.base import defaults, validate
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_confidence, format_number
from dpassay.base.outputs import check_new_folder
from dpassay.base.private_files import new_folder, write_private
from dpassay.base.progress import Progress
from dpassay.data.table_schema import read_schema

MOST_ROWS = 10**6
"""The most canaries, with all their copies."""

_CANARIES = 1000  # the default, which is doubled until the claim can be refuted


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The claim that an audit tests, and its canaries.

    Attributes:
        kind: of the canaries, a name in `KINDS`.
        canaries: number of candidates, about half of which are planted; None for 1000, or more if the claim needs them.
        like: file of the data; canaries have its columns and its format.
        schema: file of the public schema of its columns; None to read them off the data.
        templates: sentences with one ``{key}``, for kind key; empty for built-in ones.
        score: how canaries are scored, for kinds that can be scored in several ways; None for the default.
        holdout: share of the data's own records that is kept from the generator, by fair coins; None for none.
        text: column of the text.
        id: column of an id; each canary has a new one.
        user: column of the user; each canary is a new user.
        unit: privacy unit of the claim: ``record``, ``user`` or ``group(k)``.
        copies: number of records of each canary; None for the size of the unit.
        epsilon: claimed ε; None for no claim.
        delta: claimed δ; None for 0.
        confidence: with which the bounds of all scored files hold jointly, and with `holdout` those of all audits.
        guesses: number of guesses; None for the default of the kind.
        files: number of synthetic files that may be scored.
        progress: where to show progress.
    """

    kind: str
    canaries: int | None = None
    like: Path | None = None
    schema: Path | None = None
    templates: tuple[str, ...] = ()
    score: str | None = None
    holdout: float | None = None
    text: str = "text"
    id: str | None = None
    user: str | None = None
    unit: str = "record"
    copies: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    confidence: float = defaults.CONFIDENCE
    guesses: int | None = None
    files: int = 1
    progress: Progress = field(default_factory=Progress)


def plan(settings: PlanSettings, folder: Path) -> PlannedAudit:
    """Draws canaries and coins, and writes the folder of an audit atomically.

    Args:
        settings: claim and canaries.
        folder: of the audit; it must not exist, or be empty.

    Raises:
        InputError: one line, if a setting, the data or the folder is invalid.
    """
    check_new_folder(folder, (settings.like, settings.schema))
    schema = None if settings.schema is None else read_schema(settings.schema)[0]
    with input_errors():
        design, copies = planned_design(settings)
        kind = KINDS[settings.kind].scored_by(settings.score or "")
        data = read_data(
            settings.like,
            text=settings.text if kind.of_text else None,
            id=settings.id,
            user=_user(settings),
            progress=settings.progress,
            schema=schema,
        )
        data.templates = settings.templates
        rng = np.random.default_rng(secrets.randbits(256))
        # Candidates, then as many control candidates, all from one distribution.
        size = design.candidates
        drawn = kind.draw(2 * size, size // 2, data, settings.text, rng)
        rows = _rows(settings, data, drawn[:size], copies, rng)
    coins = text_canaries.draw_coins(size)
    manifest = Manifest(
        dpassay=__version__,
        nonce=secrets.token_hex(32),
        kind=settings.kind,
        score=settings.score or next(iter(kind.scores), ""),
        text=settings.text if kind.of_text else None,
        columns=[] if kind.of_text else [dataclasses.asdict(column) for column in data.columns],
        unit=settings.unit,
        copies=copies,
        guesses=design.guesses,
        files=settings.files,
        confidence=design.confidence,
        delta=design.delta,
        claim=Claimed(epsilon=settings.epsilon, delta=design.delta) if settings.epsilon is not None else None,
        statistic=statistic(design),
        candidates=drawn[:size],
        included="".join("1" if coin else "0" for coin in coins),
        never=drawn[size:],
    )
    planted = [row for place, coin in enumerate(coins) if coin for row in rows[place]]
    return _write(settings, design, data, manifest, planted, folder)


def planned_design(settings: PlanSettings) -> tuple[CanariesDesign, int]:
    """The design, with defaults for settings that were not given, and the number of records of each canary.

    Raises:
        ValueError: one line, if a setting is invalid, or no number of canaries could refute the claim.
    """
    kind = KINDS[validate.one_of(tuple(KINDS), kind=settings.kind)]
    unit = Unit.parse(settings.unit)
    _check_columns(settings, kind, unit)
    _check_layout(settings, unit)
    if kind.scores and settings.score is not None:
        validate.one_of(tuple(kind.scores), score=settings.score)
    elif settings.score is not None:
        raise ValueError(f"canaries of kind {kind.name} are scored in one way; leave --score out")
    for template in settings.templates:
        text_canaries.check_template(template)
    if settings.templates and kind.name != "key":
        raise ValueError(f"canaries of kind {kind.name} have no templates; leave --template out")
    copies = unit.size if settings.copies is None else validate.integer(minimum=1, copies=settings.copies)
    if not unit.needs_user and copies != unit.size:
        raise ValueError(
            f"at unit {unit} each canary has {unit.size} record{'s' * (unit.size > 1)}, not {copies}: a unit of "
            f"{copies} records is --unit 'group({copies})' or --unit user"
        )
    validate.integer(minimum=1, scorings=settings.files)
    if not kind.fixed_guesses and settings.guesses is not None:
        raise ValueError(f"canaries of kind {kind.name} are guessed if they are found; leave --guesses out")
    if settings.epsilon is None and settings.delta is not None and settings.delta > 0:
        raise ValueError("a δ belongs to a claim; give --epsilon too")
    claim = guarantee(settings.epsilon, settings.delta or 0.0) if settings.epsilon is not None else None
    confidence = validate.open_probability(confidence=settings.confidence)
    check_confidence(confidence, claim)  # that of all audits together
    if settings.holdout is not None:
        audits = audits_of(kind.of_text, unit.needs_user)
        each_confidence(confidence, audits * settings.files)  # of other audits, which must be below 1
        confidence = each_confidence(confidence, audits)

    def design(canaries: int, guesses: int | None) -> CanariesDesign:
        return CanariesDesign(
            candidates=canaries,
            guesses=guesses if kind.fixed_guesses else None,
            files=settings.files,
            confidence=confidence,
            unit=unit,
            claim=claim,
            delta=settings.delta or 0.0,
        )

    most = MOST_ROWS // copies
    if most < 2:
        what = "k" if unit.is_group else "copies"
        raise ValueError(
            f"at unit {unit} {what} must be at most {MOST_ROWS // 2}, not {copies}: at least two canaries are drawn, "
            f"and no more than {MOST_ROWS} records can be written"
        )
    canaries = settings.canaries
    if canaries is not None:
        validate.integer(minimum=2, maximum=MOST_ROWS, canaries=canaries)
        if canaries > most:
            raise ValueError(
                f"{canaries} canaries of {copies} records are more than the {MOST_ROWS} records that can be "
                "written; lower one of the two"
            )
    enough = _enough(lambda number: design(number, number // 2), most)
    if canaries is None:
        canaries = enough
    found = design(canaries, canaries // 2 if settings.guesses is None else settings.guesses)
    if kind.fixed_guesses and settings.guesses is None:
        found = dataclasses.replace(found, guesses=_default_guesses(found))
    return found, copies


def _enough(design: Callable[[int], CanariesDesign], most: int) -> int:
    """A number of canaries that is enough to refute the claim if half of the possible guesses are made and right.

    Args:
        design: the design of a number of canaries.
        most: the largest number.

    Raises:
        ValueError: if no number could refute the claim.
    """
    claim = design(2).claim
    sizes: list[int] = [_CANARIES << power for power in range(20)]
    sizes = [min(size, most) for size in sizes if size < 2 * most] or [most]
    if claim is None:
        return sizes[0]
    needed = {size: design(size).needed(claim.epsilon) for size in sizes}
    can = [size for size, guesses in needed.items() if guesses is not None]
    if not can:
        least = design(2)
        records = f" of {least.unit.size} records each" if least.unit.size > 1 else ""
        at = f" at δ = {format_number(least.delta)}" if least.delta else ""
        raise ValueError(
            f"no number of canaries can refute ε = {format_number(claim.epsilon)}{at} with confidence "
            f"{format_confidence(least.confidence)}: not even {most} of them{records}, with every guess right; test a "
            "smaller unit, a smaller δ or a lower confidence"
        )
    return next((size for size in can if 4 * (needed[size] or 0) <= size), can[-1])


def _check_columns(settings: PlanSettings, kind: CanaryKind, unit: Unit) -> None:
    """Raises `ValueError` if columns or files that the kind needs are not named."""
    if unit.needs_user and settings.like is not None and settings.user is None:
        raise ValueError("at unit user each canary is a new user; name the column of users with --user")
    if not kind.of_text and settings.like is None and settings.schema is None:
        raise ValueError(
            f"canaries of kind {kind.name} are rows like those of a file; name it with --like, or its schema with "
            "--schema"
        )
    named = [("text", settings.text)] if kind.of_text else []
    named += [(what, column) for what, column in (("id", settings.id), ("user", _user(settings))) if column is not None]
    if len({column for _, column in named}) < len(named):
        raise ValueError(
            f"{', '.join(f'--{what} {column}' for what, column in named)}: one column cannot be two of them, since "
            "canaries have a new value in each"
        )


def _check_layout(settings: PlanSettings, unit: Unit) -> None:
    """Raises `ValueError` if the data cannot be split as was asked for."""
    if settings.holdout is None:
        return
    if not 0 < settings.holdout <= 0.5:
        raise ValueError(
            f"holdout must be a share in (0, 0.5], since a fair coin decides on each side, not {settings.holdout}"
        )
    if settings.like is None:
        raise ValueError("--holdout splits the records of a file; name it with --like")
    if unit.is_group:
        raise ValueError(f"--holdout flips a coin for each {SINGLE_UNITS}; use --unit {SINGLE_UNITS}")
    if unit.needs_user and not KINDS[settings.kind].of_text:
        raise ValueError(
            "--holdout at unit user serves no audit of a table, since `dpassay audit table` takes rows as units; "
            "leave it out"
        )


def _default_guesses(design: CanariesDesign) -> int:
    """A tenth of the candidates, or twice the number that refutes the claim if all are correct; at most half."""
    needed = design.needed(design.claim.epsilon) if design.claim else None
    return max(1, min(design.candidates // 2, max(design.candidates // 10, 2 * (needed or 0))))


def _user(settings: PlanSettings) -> str | None:
    """The column of users, or None."""
    return settings.user or ("user" if Unit.parse(settings.unit).needs_user else None)


def _rows(
    settings: PlanSettings, data: Data, candidates: Sequence[Canary], copies: int, rng: np.random.Generator
) -> list[list[dict[str, Any]]]:
    """The records of every candidate, in the columns of the data.

    All values of a candidate's records, ids and users included, are drawn before the coins, so a coin decides only
    whether they are in the data.
    """
    count = len(candidates)
    others = draw_rows(count, data.columns, rng)
    ids = iter(
        _numbers(data, settings.id, count * copies)
        or _fresh_ids(count * copies, data.whole_ids and settings.like is not None)
    )
    users = _numbers(data, _user(settings), count) or [secrets.token_hex(8) for _ in range(count)]
    rows = []
    for place, canary in enumerate(candidates):
        row: dict[str, Any] = dict(canary.row) if canary.row is not None else others[place]
        if canary.row is None:
            row[settings.text] = canary.text
        if (user := _user(settings)) is not None:
            row[user] = users[place]
        copied = [dict(row) for _ in range(copies)]
        for one in copied if settings.id is not None else ():
            one[str(settings.id)] = next(ids)
        rows.append(copied)
    return rows


def _numbers(data: Data, column: str | None, count: int) -> list[str | int]:
    """New numbers for a Parquet column of integers, which can hold no others; empty for any other column.

    In a narrow column they lie above all that are in use.

    Raises:
        ValueError: if the column has no room for them.
    """
    held = whole_column(data, column)
    if held is None:
        return []
    most, kind = held
    lowest = 0 if most >= 2**62 else data.largest.get(str(column), -1) + 1
    most = min(most, 2**62 - 1)
    if most - lowest + 1 < count:
        raise ValueError(
            f"{data.path}: column {column!r} ({kind}) has no room for {count} new numbers; write it as int64"
        )
    return [*random.SystemRandom().sample(range(lowest, most + 1), count)]


def _fresh_ids(count: int, whole: bool) -> Iterator[str | int]:
    """New ids; with a million records and a million ids, one is in use with probability below 10⁻⁶."""
    seen: set[int] = set()
    while len(seen) < count:
        number = secrets.randbits(62)
        if number not in seen:
            seen.add(number)
            yield number if whole else f"{number:016x}"


def _write(
    settings: PlanSettings,
    design: CanariesDesign,
    data: Data,
    manifest: Manifest,
    planted: list[dict[str, Any]],
    folder: Path,
) -> PlannedAudit:
    """Writes a temporary folder, which is renamed when it is complete."""
    with new_folder(folder) as partial:
        path = partial / f"canaries{data.suffix}"
        write_rows(path, planted, data)
        if settings.holdout is not None:
            split = Split(
                share=settings.holdout,
                text=manifest.text,
                id=settings.id,
                unit=design.unit,
                user=_user(settings) if design.unit.needs_user else None,
            )
            layout = write_layout(partial, data, planted, split, settings.progress)
            manifest = manifest.model_copy(update={"layout": layout})
        write_private(partial / "private" / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        named = {"text": manifest.text, "id": settings.id, "user": _user(settings)}
        about = PlannedAudit(
            kind=settings.kind,
            score=manifest.score,
            design=design,
            copies=manifest.copies,
            canaries=path.name,
            canaries_sha256=hashed(path),
            manifest_sha256=hashed(partial / "private" / MANIFEST),
            reads_data=data.path,
            made_up=_made_up(settings, data),
            like_id=data.like_id if settings.id is None else (),
            input=f"input{data.suffix}" if manifest.layout else "",
            columns={what: column for what, column in named.items() if column is not None},
            total=settings.confidence,
            layout=manifest.layout,
        )
        write_private(partial / PLAN, json.dumps(about.to_json(), indent=2, ensure_ascii=False) + "\n")
        write_private(partial / "README.md", readme(about))
    return about


def _made_up(settings: PlanSettings, data: Data) -> tuple[str, ...]:
    """The columns in which canaries have a made-up word."""
    given = (settings.text, settings.id, settings.user)
    names = [
        column.name
        for column in data.columns
        if column.kind == "other" and column.missing < 1 and column.name not in given
    ]
    return tuple(names) if data.path is not None else ()

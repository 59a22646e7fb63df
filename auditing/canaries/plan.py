"""Plans an audit of a third party's generator: draws canaries and coins, and writes files for the owner of the data."""

from __future__ import annotations

import dataclasses
import json
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpassay import __version__
from dpassay.accounting.adjacency import SINGLE_UNITS, Unit
from dpassay.attacks.canaries import texts as text_canaries
from dpassay.attacks.canaries.rows import draw_rows
from dpassay.auditing.canaries.files import Manifest, PlannedCanaries, statistic
from dpassay.auditing.canaries.kinds import KINDS, Canary, CanaryKind
from dpassay.auditing.canaries.layout import RecordSplit, audits_of, each_confidence, write_layout
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

MAX_ROWS = 10**6
"""The most canaries, with all their copies."""

_CANARIES = 1000  # the default, which is doubled until the claim can be refuted


def plan(
    folder: str | Path,
    *,
    kind: str = "key",
    canaries: int | None = None,
    like: str | Path | None = None,
    schema: str | Path | None = None,
    templates: Iterable[str] = (),
    score: str | None = None,
    holdout: float | None = None,
    text: str = "text",
    id: str | None = None,
    user: str | None = None,
    unit: str = "record",
    copies: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    confidence: float = defaults.CONFIDENCE,
    guesses: int | None = None,
    scorings: int = 1,
    progress: Progress | None = None,
) -> PlannedCanaries:
    """Plans an audit by canaries: draws them and their coins, and fixes in advance what is tested.

    Args:
        folder: to make; it must not exist, or be empty.
        kind: of the canaries: ``key`` or ``echo`` for texts, ``table``, ``edge`` or ``category`` for rows.
        canaries: number of candidates, about half of which are planted; None for 1000, or more if the claim needs them.
        like: file of the data (.jsonl, .csv, .parquet); canaries have its columns and its format.
        schema: file of the public schema of its columns; None to read them off the data.
        templates: sentences with one ``{key}``, for kind key; empty for built-in ones.
        score: ``nearest`` or ``pairs``, for kinds table and edge; None for the default.
        holdout: share of the data's own records that is kept from the generator by fair coins; None for none.
        text: column of the text.
        id: column of an id; each canary has a new one.
        user: column of the user; each canary is a new user.
        unit: privacy unit of the claim: ``record``, ``user`` or ``group(k)``.
        copies: number of records of each canary; None for the size of the unit.
        epsilon: claimed ε under adding or removing one unit; None for no claim.
        delta: claimed δ; None for 0.
        confidence: with which the bounds of all scorings hold jointly, and with `holdout` those of all audits.
        guesses: number of guesses; None for the default of the kind.
        scorings: number of synthetic files and models that may be scored.
        progress: where to show progress.

    Returns:
        The plan: the file of the canaries to add to the data, the hash of the manifest, which is to be kept outside the
        folder, and what the audit can show.

    Raises:
        InputError: if an argument, the data or the folder is invalid.
    """
    target, path = Path(folder), None if like is None else Path(like)
    check_new_folder(target, (path, None if schema is None else Path(schema)))
    public = None if schema is None else read_schema(Path(schema))[0]
    shown = progress or Progress()
    with input_errors():
        planted, protected = KINDS[validate.one_of(tuple(KINDS), kind=kind)], Unit.parse(unit)
        columns = Columns(
            text=text if planted.of_text else None,
            id=id,
            user=user or ("user" if protected.needs_user else None),
        )
        if protected.needs_user and path is not None and user is None:
            raise ValueError("at unit user each canary is a new user; name the column of users with --user")
        if not planted.of_text and path is None and public is None:
            raise ValueError(
                f"canaries of kind {kind} are rows like those of a file; name it with --like, or its schema with "
                "--schema"
            )
        columns.check()
        if holdout is not None:
            _check_holdout(holdout, path, protected, of_text=planted.of_text)
        _check_kind(planted, score, templates := tuple(templates), guesses)
        each = _copies(protected, copies)
        design = planned_design(
            planted,
            protected,
            each,
            canaries=canaries,
            guesses=guesses,
            scorings=scorings,
            epsilon=epsilon,
            delta=delta,
            confidence=confidence,
            holdout=holdout is not None,
        )
        chosen = planted.scored_by(score or "")
        data = read_data(path, text=columns.text, id=id, user=columns.user, progress=shown, schema=public)
        data.templates = templates
        rng = np.random.default_rng(secrets.randbits(256))
        # Candidates, then as many control candidates, all from one distribution.
        size = design.candidates
        drawn = chosen.draw(2 * size, size // 2, data, text, rng)
        rows = _rows(columns, data, drawn[:size], each, rng)
    coins = text_canaries.draw_coins(size)
    manifest = Manifest(
        dpassay=__version__,
        nonce=secrets.token_hex(32),
        kind=kind,
        score=score or next(iter(planted.scores), ""),
        text=columns.text,
        columns=[] if planted.of_text else [dataclasses.asdict(column) for column in data.columns],
        unit=unit,
        copies=each,
        guesses=design.guesses,
        files=scorings,
        confidence=design.confidence,
        delta=design.delta,
        claim=Claimed(epsilon=epsilon, delta=design.delta) if epsilon is not None else None,
        statistic=statistic(design),
        candidates=drawn[:size],
        included="".join("1" if coin else "0" for coin in coins),
        never=drawn[size:],
    )
    written = [row for number, coin in enumerate(coins) if coin for row in rows[number]]
    return _write(target, manifest, written, data, columns, holdout, confidence, shown)


class Columns(NamedTuple):
    """The columns of the data in which canaries have new values; None for those that it has not."""

    text: str | None
    id: str | None
    user: str | None

    @property
    def named(self) -> dict[str, str]:
        """The columns that there are, by what they hold."""
        return {what: column for what, column in self._asdict().items() if column is not None}

    def check(self) -> None:
        """Raises `ValueError` if one column is named twice."""
        if len(set(self.named.values())) < len(self.named):
            raise ValueError(
                f"{', '.join(f'--{what} {column}' for what, column in self.named.items())}: one column cannot be two "
                "of them, since canaries have a new value in each"
            )


def _check_kind(kind: CanaryKind, score: str | None, templates: Sequence[str], guesses: int | None) -> None:
    """Raises `ValueError` if an argument does not suit the kind."""
    if kind.scores and score is not None:
        validate.one_of(tuple(kind.scores), score=score)
    elif score is not None:
        raise ValueError(f"canaries of kind {kind.name} are scored in one way; leave --score out")
    for template in templates:
        text_canaries.check_template(template)
    if templates and kind.name != "key":
        raise ValueError(f"canaries of kind {kind.name} have no templates; leave --template out")
    if not kind.fixed_guesses and guesses is not None:
        raise ValueError(f"canaries of kind {kind.name} are guessed if they are found; leave --guesses out")


def _copies(unit: Unit, copies: int | None) -> int:
    """The number of records of each canary; raises `ValueError` if it is not that of the unit."""
    if copies is None:
        return unit.size
    validate.integer(minimum=1, copies=copies)
    if not unit.needs_user and copies != unit.size:
        raise ValueError(
            f"at unit {unit} each canary has {unit.size} record{'s' * (unit.size > 1)}, not {copies}: a unit of "
            f"{copies} records is --unit 'group({copies})' or --unit user"
        )
    return copies


def planned_design(
    kind: CanaryKind,
    unit: Unit,
    copies: int,
    *,
    canaries: int | None,
    guesses: int | None,
    scorings: int,
    epsilon: float | None,
    delta: float | None,
    confidence: float,
    holdout: bool,
) -> CanariesDesign:
    """The design, with defaults for numbers that were not given.

    Raises:
        ValueError: one line, if a number is invalid, or no number of canaries could refute the claim.
    """
    validate.integer(minimum=1, scorings=scorings)
    if epsilon is None and delta is not None and delta > 0:
        raise ValueError("a δ belongs to a claim; give --epsilon too")
    claim = guarantee(epsilon, delta or 0.0) if epsilon is not None else None
    validate.open_probability(confidence=confidence)
    check_confidence(confidence, claim)  # that of all audits together
    if holdout:
        audits = audits_of(kind.of_text, unit.needs_user)
        each_confidence(confidence, audits * scorings)  # of other audits, which must be below 1
        confidence = each_confidence(confidence, audits)

    def design(canaries: int, guesses: int | None) -> CanariesDesign:
        return CanariesDesign(
            candidates=canaries,
            guesses=guesses if kind.fixed_guesses else None,
            scorings=scorings,
            confidence=confidence,
            unit=unit,
            claim=claim,
            delta=delta or 0.0,
        )

    most = MAX_ROWS // copies
    if most < 2:
        what = "k" if unit.is_group else "copies"
        raise ValueError(
            f"at unit {unit} {what} must be at most {MAX_ROWS // 2}, not {copies}: at least two canaries are drawn, "
            f"and no more than {MAX_ROWS} records can be written"
        )
    if canaries is not None:
        validate.integer(minimum=2, maximum=MAX_ROWS, canaries=canaries)
        if canaries > most:
            raise ValueError(
                f"{canaries} canaries of {copies} records are more than the {MAX_ROWS} records that can be "
                "written; lower one of the two"
            )
    enough = _enough(lambda number: design(number, number // 2), most)
    if canaries is None:
        canaries = enough
    result = design(canaries, canaries // 2 if guesses is None else guesses)
    if kind.fixed_guesses and guesses is None:
        result = dataclasses.replace(result, guesses=_default_guesses(result))
    return result


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


def _check_holdout(holdout: float, like: Path | None, unit: Unit, *, of_text: bool) -> None:
    """Raises `ValueError` if the data cannot be split as was asked for."""
    if not 0 < holdout <= 0.5:
        raise ValueError(f"holdout must be a share in (0, 0.5], since a fair coin decides on each side, not {holdout}")
    if like is None:
        raise ValueError("--holdout splits the records of a file; name it with --like")
    if unit.is_group:
        raise ValueError(f"--holdout flips a coin for each {SINGLE_UNITS}; use --unit {SINGLE_UNITS}")
    if unit.needs_user and not of_text:
        raise ValueError(
            "--holdout at unit user serves no audit of a table, since `dpassay audit table` takes rows as units; "
            "leave it out"
        )


def _default_guesses(design: CanariesDesign) -> int:
    """A tenth of the candidates, or twice the number that refutes the claim if all are correct; at most half."""
    needed = design.needed(design.claim.epsilon) if design.claim else None
    return max(1, min(design.candidates // 2, max(design.candidates // 10, 2 * (needed or 0))))


def _rows(
    columns: Columns, data: Data, candidates: Sequence[Canary], copies: int, rng: np.random.Generator
) -> list[list[dict[str, Any]]]:
    """The records of every candidate, in the columns of the data.

    All values of a candidate's records, ids and users included, are drawn before the coins, so a coin decides only
    whether they are in the data.
    """
    count = len(candidates)
    others = draw_rows(count, data.columns, rng)
    ids = iter(
        _numbers(data, columns.id, count * copies)
        or _fresh_ids(count * copies, data.whole_ids and data.path is not None)
    )
    users = _numbers(data, columns.user, count) or [secrets.token_hex(8) for _ in range(count)]
    rows = []
    for target, canary in enumerate(candidates):
        row: dict[str, Any] = dict(canary.row) if canary.row is not None else others[target]
        if canary.row is None:
            row[str(columns.text)] = canary.text
        if columns.user is not None:
            row[columns.user] = users[target]
        copied = [dict(row) for _ in range(copies)]
        for item in copied if columns.id is not None else ():
            item[str(columns.id)] = next(ids)
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
    folder: Path,
    manifest: Manifest,
    planted: list[dict[str, Any]],
    data: Data,
    columns: Columns,
    holdout: float | None,
    confidence: float,
    progress: Progress,
) -> PlannedCanaries:
    """Writes a temporary folder, which is renamed when it is complete."""
    with new_folder(folder) as partial:
        path = partial / f"canaries{data.suffix}"
        write_rows(path, planted, data)
        if holdout is not None:
            unit = manifest.design.unit
            user = columns.user if unit.needs_user else None
            split = RecordSplit(share=holdout, text=manifest.text, id=columns.id, unit=unit, user=user)
            layout = write_layout(partial, data, planted, split, progress)
            manifest = manifest.model_copy(update={"layout": layout})
        write_private(partial / "private" / MANIFEST, manifest.model_dump_json(indent=1, by_alias=True) + "\n")
        planned = PlannedCanaries(
            manifest=manifest,
            manifest_sha256=hashed(partial / "private" / MANIFEST),
            canaries=path.name,
            canaries_sha256=hashed(path),
            reads_data=data.path,
            made_up=_made_up(columns, data),
            like_id=data.like_id if columns.id is None else (),
            columns=columns.named,
            total=confidence,
        )
        write_private(partial / PLAN, json.dumps(planned.to_json(), indent=2, ensure_ascii=False) + "\n")
        write_private(partial / "README.md", readme(planned))
    return planned


def _made_up(columns: Columns, data: Data) -> tuple[str, ...]:
    """The columns in which canaries have a made-up word."""
    if data.path is None:
        return ()
    return tuple(
        column.name
        for column in data.columns
        if column.kind == "other" and column.missing < 1 and column.name not in columns
    )

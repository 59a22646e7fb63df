"""Plans an audit of a third party's generator: draws canaries and coins, and writes files for the owner of the data."""

from __future__ import annotations

import dataclasses
import json
import random
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpassay import __version__
from dpassay.accounting.adjacency import SINGLE_UNITS, Unit
from dpassay.attacks.canaries import texts as text_canaries
from dpassay.attacks.canaries.rows import draw_rows
from dpassay.auditing.canaries.candidate import Canary
from dpassay.auditing.canaries.design import planned_design
from dpassay.auditing.canaries.files import CanariesPlan, PlannedCanaries
from dpassay.auditing.canaries.holdout import write_layout
from dpassay.auditing.canaries.kinds import KINDS, CanaryKind
from dpassay.auditing.canaries.scorer import BUILTIN, PlannedScorer
from dpassay.auditing.canaries.words import readme
from dpassay.auditing.data import Columns, Data, read_data, whole_column, write_rows
from dpassay.auditing.files import MANIFEST, PLAN, Claimed, hashed
from dpassay.base import defaults, validate
from dpassay.base.errors import input_errors
from dpassay.base.outputs import check_device, check_new_folder
from dpassay.base.private_files import new_folder, write_private
from dpassay.base.progress import Progress
from dpassay.data.reader import FOUND, FileOptions
from dpassay.data.table_schema import read_schema


def plan(
    folder: str | Path,
    *,
    kind: str = "key",
    canaries: int | None = None,
    like: str | Path | None = None,
    schema: str | Path | None = None,
    templates: Iterable[str] = (),
    score: str | None = None,
    scorer: str | None = None,
    canary_temperature: float | None = None,
    device: str = "cpu",
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
    reading: FileOptions = FOUND,
    progress: Progress | None = None,
) -> PlannedCanaries:
    """Plans an audit by canaries: draws them and their coins, and fixes in advance what is tested.

    Args:
        folder: to make; it must not exist, or be empty.
        kind: of the canaries: ``key`` or ``echo`` for texts, ``table``, ``edge`` or ``category`` for rows.
        canaries: number of candidates, about half of which are planted; None for 1000, or more if the claim needs them.
        like: file of the data (.jsonl, .csv, .tsv, .parquet); canaries have its columns and are written as it is.
        schema: file of the public schema of its columns; None to read them off the data.
        templates: sentences with one ``{key}``, for kind key; empty for built-in ones.
        score: ``nearest`` or ``pairs``, for kinds table and edge; ``ngram`` or ``model``, for kind echo; None for the
            first of them.
        scorer: of score ``model``, the public language model that is fine-tuned on the synthetic text: ``builtin`` or a
            folder; None for ``builtin``.
        canary_temperature: of score ``model``, at which this model writes the endings of canaries; None for 2.
        device: where it runs: ``auto``, ``cpu`` or ``cuda``.
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
        reading: how the file of the data is written; what is not stated is found out.
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
        if path is None and reading != FOUND:
            raise ValueError("how a file is written was stated, but no file of the data; name it with --like")
        if holdout is not None:
            _check_holdout(holdout, path, protected)
        _check_kind(planted, score, templates := tuple(templates), guesses)
        by_model = _planned_scorer(planted, score, scorer, canary_temperature)
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
        chosen = planted.scored_by(score or "", by_model).working(check_device(device), shown)
        data = read_data(path, columns, shown, public, reading)
        data.templates = templates
        rng = np.random.default_rng(secrets.randbits(256))
        # Candidates, then as many control candidates, all from one distribution.
        size = design.candidates
        drawn = chosen.draw(2 * size, size // 2, data, text, rng)
        rows = _rows(columns, data, drawn[:size], each, rng)
    coins = text_canaries.draw_coins(size)
    written = [row for number, coin in enumerate(coins) if coin for row in rows[number]]
    with new_folder(target) as partial:
        added, layout = partial / f"canaries{data.suffix}", None
        write_rows(added, written, data)
        if holdout is not None:
            split = columns if protected.needs_user else columns._replace(user=None)
            layout = write_layout(partial, data, written, split, protected, holdout, shown)
        content = CanariesPlan(
            dpassay=__version__,
            nonce=secrets.token_hex(32),
            kind=kind,
            score=score or next(iter(planted.scores), ""),
            scorer=by_model,
            text=columns.text,
            columns=[] if planted.of_text else [dataclasses.asdict(column) for column in data.columns],
            unit=unit,
            copies=each,
            guesses=design.guesses,
            files=scorings,
            confidence=design.confidence,
            delta=design.delta,
            claim=Claimed(epsilon=epsilon, delta=design.delta) if epsilon is not None else None,
            statistic=design.statistic,
            candidates=drawn[:size],
            included="".join("1" if coin else "0" for coin in coins),
            never=drawn[size:],
            layout=layout,
            joint_confidence=confidence,
            canaries=added.name,
            canaries_sha256=hashed(added),
            reads_data=None if path is None else str(path),
            made_up=_made_up(columns, data),
            like_id=data.like_id if columns.id is None else (),
            id=columns.id,
            user=columns.user,
            reading=reading,
            written=data.written,
            understood=data.summaries,
        )
        manifest = partial / "private" / MANIFEST
        write_private(manifest, content.model_dump_json(indent=1, by_alias=True) + "\n")
        planned = PlannedCanaries(target, content, hashed(manifest))
        write_private(partial / PLAN, json.dumps(planned.to_json(), indent=2, ensure_ascii=False) + "\n")
        write_private(partial / "README.md", readme(planned))
    return planned


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


def _planned_scorer(
    kind: CanaryKind, score: str | None, scorer: str | None, temperature: float | None
) -> PlannedScorer | None:
    """The language model that scores canaries, for kinds and scores that take one.

    Raises:
        ValueError: if it is not a model, or arguments are of another kind or score.
    """
    if score == "model" and kind.name == "echo":
        temperature = defaults.CANARY_TEMPERATURE if temperature is None else temperature
        return PlannedScorer.of(scorer or BUILTIN, validate.positive(canary_temperature=temperature))
    for option, value in (("--scorer", scorer), ("--canary-temperature", temperature)):
        if value is not None:
            raise ValueError(f"{option} belongs to --kind echo --score model; add these, or leave it out")
    return None


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


def _check_holdout(holdout: float, like: Path | None, unit: Unit) -> None:
    """Raises `ValueError` if the data cannot be split as was asked for."""
    if not 0 < holdout <= 0.5:
        raise ValueError(f"holdout must be a share in (0, 0.5], since a fair coin decides on each side, not {holdout}")
    if like is None:
        raise ValueError("--holdout splits the records of a file; name it with --like")
    if unit.is_group:
        raise ValueError(f"--holdout flips a coin for each {SINGLE_UNITS}; use --unit {SINGLE_UNITS}")


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


def _made_up(columns: Columns, data: Data) -> tuple[str, ...]:
    """The columns in which canaries have a made-up word."""
    if data.path is None:
        return ()
    return tuple(
        column.name
        for column in data.columns
        if column.kind == "other" and column.missing < 1 and column.name not in columns
    )

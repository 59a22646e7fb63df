"""Audits of released text and tables, whoever made them: source against holdout, on files."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cupel import __version__
from cupel.accounting import validate
from cupel.accounting.adjacency import Unit
from cupel.attacks.released.holdout import Hits, Units, content_key, places
from cupel.audits.games.released_data import holdout_audit
from cupel.errors import InputError, input_errors
from cupel.progress import Progress, Step
from cupel.utility.measures import synthetic_file, write

if TYPE_CHECKING:
    from cupel.attacks.released.pii import PersonalData
    from cupel.attacks.released.tables import Tables

TEXT_NAME, TABLE_NAME, KEY_NAME = "text-audit.json", "table-audit.json", "personal-data-key.json"

PRIVATE = (
    "Every number here is computed from private data without noise. It is covered by no guarantee and belongs to the "
    "private side: do not release it."
)


@dataclass(frozen=True, kw_only=True)
class HoldoutSettings:
    """Which files an audit of released data compares, and how.

    Attributes:
        source: file of the records that the generator saw.
        holdout: file of records of the same kind that it did not see, with the same columns.
        coins: whether each unit was put into source or holdout by its own independent fair coin.
        delta: δ at which ε is bounded, where there are coins.
        confidence: with which all bounds of the audit hold jointly. Each of k attacks has confidence
            1 − (1 − confidence)/k, as has each of its intervals.
        progress: where to show progress.
    """

    source: Path
    holdout: Path
    coins: bool = False
    delta: float = 0.0
    confidence: float = 0.95
    progress: Progress = field(default_factory=Progress)

    def check(self) -> None:
        """Raises `ValueError` for numbers out of range."""
        validate.probability_below_one(delta=self.delta)
        validate.open_probability(confidence=self.confidence)


@dataclass(frozen=True, kw_only=True)
class TextAuditSettings(HoldoutSettings):
    """Settings of an audit of synthetic text.

    Attributes:
        text: column of the text in source and holdout.
        user: column of the user, who is then the unit; None for records.
        synthetic_text: column of the text in the synthetic file.
        words, near_words, near_share: see `cupel.attacks.released.extraction.Criteria`.
    """

    text: str = "text"
    user: str | None = None
    synthetic_text: str = "text"
    words: int = 8
    near_words: int = 4
    near_share: float = 0.75


@dataclass(frozen=True, kw_only=True)
class TableAuditSettings(HoldoutSettings):
    """Settings of an audit of a synthetic table.

    Attributes:
        secret: column whose value is inferred from the others; None for no attribute inference.
        ignore: columns that are left out, such as ids.
        categorical: columns of numbers that are treated as categories.
        limit: largest number of units, drawn from source and holdout together; exact matches use all units.
        seed: of the draw, a public choice that is fixed before the synthetic file is read.
    """

    secret: str | None = None
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    limit: int = 20_000
    seed: int = 0

    def check(self) -> None:
        """Raises `ValueError` for numbers out of range."""
        super().check()
        validate.integer(minimum=2, limit=self.limit)
        validate.integer(seed=self.seed)


def audit_text(synthetic: Path, settings: TextAuditSettings, output: Path) -> dict[str, Any]:
    """Which records do synthetic texts repeat, and which personal data do they print?

    Args:
        synthetic: a file, or a run folder.
        settings: what it is held against.
        output: where the result is going to be written; the key of its hashes lies or is put beside it.

    Returns:
        The audits in JSON types.

    Raises:
        InputError: one line, for files, columns or parameters that do not do.
    """
    from cupel.attacks.released.extraction import Criteria, extraction
    from cupel.attacks.released.pii import personal_data
    from cupel.mechanisms.data.records import read_texts, read_user_texts
    from cupel.mechanisms.data.word_runs import Words

    with input_errors():
        settings.check()
        criteria = Criteria(settings.words, settings.near_words, settings.near_share)
    path, progress = synthetic_file(synthetic), settings.progress
    key_file = output.with_name(KEY_NAME)
    key = _key(key_file)

    def released() -> Iterator[str]:
        return (text for text, _ in read_texts(path, text=settings.synthetic_text, empty=True))

    with progress.stage("Reading") as step, input_errors():
        files = (settings.source, settings.holdout)
        sides = [list(read_user_texts(file, text=settings.text, user=settings.user)) for file in files]
        _check_sides(settings, *sides)
        written, source, holdout = Words.of(released()), *(Words.of(text for text, _ in side) for side in sides)
        if not len(written):
            raise InputError(f"{path}: holds no text")
        units = _text_units(settings, sides, (source, holdout))
        step(1, 1)
    with progress.stage("Comparing words") as step:
        hits = extraction(written, source, holdout, units, criteria)
        step(1, 1)
    with progress.stage("Looking for personal data") as step, input_errors():
        seen, unseen = ((text for text, _ in side) for side in sides)
        total, first = len(written) + len(source) + len(holdout), len(written) + len(source)
        printed = personal_data(
            _counted(released(), step, 0, total),
            _counted(seen, step, len(written), total),
            _counted(unseen, step, first, total),
            units,
            key=key,
        )
    found = _result("text", path, settings, units, [*hits, printed.hits], "user" if settings.user else "record")
    if not key_file.exists():
        write({"key": key.hex()}, key_file)
    return found | {"personal_data": _personal(printed)}


def _counted(texts: Iterator[str], step: Step, begin: int, total: int) -> Iterator[str]:
    for done, text in enumerate(texts, begin + 1):
        yield text
        if done % 1024 == 0 or done == total:
            step(done, total)


def audit_table(synthetic: Path, settings: TableAuditSettings) -> dict[str, Any]:
    """Which rows does a synthetic table repeat, come close to, tell the secret of, or single out?

    Args:
        synthetic: a file.
        settings: what it is held against.

    Raises:
        InputError: as above.
    """
    from cupel.attacks.released.attribute_inference import attribute_inference
    from cupel.attacks.released.nearest_record import closest_records, exact_matches
    from cupel.attacks.released.singling_out import singling_out
    from cupel.attacks.released.tables import encode
    from cupel.mechanisms.data.records import read_rows

    progress = settings.progress
    with progress.stage("Reading") as step, input_errors():
        settings.check()
        files = (synthetic, settings.source, settings.holdout)
        rows = [[values for _, values in read_rows(file)] for file in files]
        _check_sides(settings, *rows[1:])
        names = [[content_key(settings.seed, sorted(row.items())) for row in side] for side in rows[1:]]
        every = encode(*rows, ignore=settings.ignore, categorical=settings.categorical)
        if settings.secret is not None:
            every.place(settings.secret)
        del rows
        units = Units.of(every.source.keys(), every.holdout.keys())
        _check_units(settings, units, f"{settings.source} and {settings.holdout}", "--ignore")
        step(1, 1)
    firsts = [_firsts(of) for of in (units.source, units.holdout)]
    every = replace(every, source=every.source.take(firsts[0]), holdout=every.holdout.take(firsts[1]))
    order = places([side[row] for side, chosen in zip(names, firsts, strict=True) for row in chosen])
    some = _drawn(every, order, settings.limit)
    hits = [exact_matches(every)]
    with progress.stage("Nearest rows") as step:
        hits.append(closest_records(some, seed=settings.seed, limit=settings.limit // 2, progress=step))
    if settings.secret is not None:
        with progress.stage("Guessing the secret column") as step, input_errors():
            hits.append(attribute_inference(some, settings.secret, progress=step))
    with progress.stage("Singling out") as step:
        hits.append(singling_out(some, seed=settings.seed, progress=step))
    found = _result("table", synthetic, settings, units, hits, "record")
    columns = {"numeric": list(every.numeric), "categorical": list(every.categorical)}
    return found | {"columns": columns, "seed": settings.seed, "used": len(some.source) + len(some.holdout)}


def _check_sides(settings: HoldoutSettings, source: Sequence[Any], holdout: Sequence[Any]) -> None:
    for path, side in ((settings.source, source), (settings.holdout, holdout)):
        if not side:
            raise InputError(f"{path}: holds no record; an audit needs some of source and holdout")


def _text_units(settings: TextAuditSettings, sides: list[list[tuple[str, str]]], words: tuple[Any, Any]) -> Units:
    if settings.user is not None:
        units = Units.of(*([user for _, user in side] for side in sides))
        if units.in_both:
            raise InputError(
                f"{settings.source} and {settings.holdout}: {units.in_both} users of column {settings.user!r} are in "
                "both; put all records of a user on one side"
            )
        return units
    units = Units.of(*([str(key) for key in side.whole().tolist()] for side in words))
    _check_units(settings, units, f"{settings.source} and {settings.holdout}", "--user")
    return units


def _check_units(settings: HoldoutSettings, units: Units, files: str, option: str) -> None:
    if not units.source_count or not units.holdout_count:
        raise InputError(f"{files}: one of them holds nothing that the other does not; give files of different records")
    repeated = units.copies + units.in_both
    if settings.coins and repeated:
        raise InputError(
            f"{files}: {repeated} records have the content of another one, and --coins needs a coin for each unit: "
            "leave repeated records out before the coins are thrown"
            + (", or name the column of what the coins were thrown for with --user" if option == "--user" else "")
        )


def _firsts(units: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first row of each unit, by index."""
    numbers, rows = np.unique(units, return_index=True)
    return np.sort(rows[numbers >= 0])


def _drawn(tables: Tables, order: np.ndarray[Any, np.dtype[np.int64]], limit: int) -> Tables:
    """At most so many units of both sides together, the first in an order that knows neither side nor synthetic rows.

    Coins say nothing of a draw that knows the sides, as one by places in a list does: the source stands first in it.
    """
    count, total = len(tables.source), len(tables.source) + len(tables.holdout)
    if total <= limit:
        return tables
    chosen = np.sort(np.argsort(order, kind="stable")[:limit])
    source, holdout = chosen[chosen < count], chosen[chosen >= count] - count
    if not len(source) or not len(holdout):
        raise InputError(f"of {limit} units drawn, one of source and holdout has none: raise --limit")
    return replace(tables, source=tables.source.take(source), holdout=tables.holdout.take(holdout))


def _result(
    kind: str, path: Path, settings: HoldoutSettings, units: Units, hits: list[Hits], unit: str
) -> dict[str, Any]:
    """Every audit at the confidence with which the bounds of all of them hold together."""
    names = tuple(found.name for found in hits)
    each = 1 - (1 - settings.confidence) / len(hits)
    audits = [
        holdout_audit(
            found, coins=settings.coins, confidence=each, delta=settings.delta, unit=Unit(unit), tried=names
        ).to_json()
        for found in hits
    ]
    return {
        "schema": 1,
        "private": PRIVATE,
        "version": __version__,
        "kind": kind,
        "files": {"synthetic": str(path), "source": str(settings.source), "holdout": str(settings.holdout)},
        "unit": unit,
        "units": {"source": units.source_count, "holdout": units.holdout_count, **units.about()},
        "coins": settings.coins,
        "confidence": settings.confidence,
        "audits": audits,
    }


def _personal(printed: PersonalData) -> dict[str, Any]:
    values = [
        {"kind": value.kind, "hash": value.hash, "occurrences": value.occurrences, "where": value.where}
        for value in printed.values
    ]
    return {"counts": printed.counts(), "hash": f"HMAC-SHA256 under the key in {KEY_NAME}", "values": values}


def _key(path: Path) -> bytes:
    """The key that lies at `path`, so that hashes of several audits compare, or a new one."""
    import json

    if not path.exists():
        return secrets.token_bytes(32)
    try:
        return bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path}: is not the key of an earlier audit; move it away, and a new one is made") from None

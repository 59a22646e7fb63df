"""The entries of a ledger: their types, their canonical text, and the hash that chains them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from dp_accounting import DpEvent

from dpassay.accounting import events
from dpassay.base.errors import DpassayError, FileError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

FORMAT = 2
"""The format of new ledgers."""

FORMATS = (1, FORMAT)
"""The formats that can be read. A file of format 1 becomes format 2 when an entry is added that format 1 lacks."""

KINDS_AFTER_FINISH = {"verdict": 2, "release": 2}
"""The kinds of entries that may follow the end of a run, each with the first format that has it."""

GENESIS = "0" * 64
"""The previous hash of the first entry."""

WHOLE = ""
"""The part name of the realised cost of a charge on the whole data."""

_LONGEST_NAME = 200
_NOT_FINITE = "the ledger holds finite numbers only, no infinity and no NaN"
_COSTS = 3  # u⁻, u⁺, γ
_ROOM = 2.0**-29  # float error of a realised cost, which is rounded up: 2^-52·(3V + …) < 2^-30 for V ≤ 2^20 tokens


class LedgerRow(NamedTuple):
    """One row of the table, as stored in the file."""

    seq: int
    run: str
    kind: str
    body: str
    previous: str
    hash: str

    def computed_hash(self) -> str:
        """The hash of the other columns: SHA-256 of five lines, UTF-8: seq, run, kind, previous hash, body.

        The first four contain no line break, so no two entries have the same text.
        """
        text = f"{self.seq}\n{self.run}\n{self.kind}\n{self.previous}\n{self.body}"
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

    @classmethod
    def hashed(cls, seq: int, run: str, kind: str, body: str, previous: str) -> LedgerRow:
        """A row with its hash."""
        row = cls(seq, run, kind, body, previous, "")
        return row._replace(hash=row.computed_hash())


class LedgerError(DpassayError):
    """The ledger is invalid, was changed or cannot be accessed, or a call is not allowed. The message is one line."""


class LedgerFileError(LedgerError, FileError):
    """The file cannot be accessed or written, or is damaged, as on a full disk. Everything committed is kept."""


class AlreadyCommitted(LedgerError):
    """A second value was committed for a key. The first one stands: use `outcome` and discard the new value.

    Attributes:
        outcome: what was committed first, by this process before it was killed or by another process.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"{outcome.key!r} is committed already; use the committed value and discard the new one")
        self.outcome = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """An event at its worst-case cost, charged before anything is sampled.

    Attributes:
        key: names the step within its run: the stage itself, or ``stage/…`` (``tokens/17``).
        event: charged once to the whole data, or once to *each* of `parts`.
        stage: the part of the mechanism that charges, such as ``counts`` or ``tokens``.
        partition: names a partition of the units into disjoint parts, fixed for the run; None charges the whole data.
        parts: the parts that are charged; a part name belongs to one partition of its run.
        partition_is_public: the part of each unit is public and does not depend on its value.
        counts: how often the event runs, one number of at least 1 per part (a single one for the whole data); None is
            once.
    """

    key: str
    event: DpEvent
    stage: str
    partition: str | None = None
    parts: tuple[str, ...] = ()
    partition_is_public: bool = False
    counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_name(self.stage, "a stage")
        self.check_key(self.key)
        if not isinstance(self.event, DpEvent):
            raise LedgerError(f"a charge needs a DpEvent, not a {type(self.event).__name__}")
        if self.partition is None:
            if self.parts or self.partition_is_public:
                raise LedgerError("a charge with parts must name its partition")
        else:
            check_name(self.partition, "a partition")
            for part in self.parts:
                check_name(part, "a part")
            if not self.parts or len(set(self.parts)) != len(self.parts):
                raise LedgerError("a charge with a partition must list its parts, each once")
        if self.counts is not None:
            if len(self.counts) != max(1, len(self.parts)):
                raise LedgerError(f"a charge needs one count per part, not {len(self.counts)} for {len(self.parts)}")
            if not all(type(count) is int and count >= 1 for count in self.counts):
                raise LedgerError("the counts of a charge must be whole numbers of at least 1")

    @property
    def times(self) -> dict[str, int]:
        """How often the event runs in each part; the whole data is the part `WHOLE`."""
        parts = self.parts or (WHOLE,)
        return dict(zip(parts, self.counts or (1,) * len(parts), strict=True))

    def check_key(self, key: object) -> None:
        """Checks that a key belongs to this stage.

        Raises:
            LedgerError: if it does not.
        """
        check_name(key, "a key")
        if key != self.stage and not str(key).startswith(f"{self.stage}/"):
            raise LedgerError(f"key {key!r} is of no known stage: it must be {self.stage!r} or '{self.stage}/…'")

    def to_json(self) -> dict[str, Any]:
        """The body of the entry, in JSON types; a tuple is a list of JSON."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)} | {
            "event": events.to_json(self.event)
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Charge:
        """The inverse of `to_json`.

        Raises:
            LedgerError: if `body` is not a charge.
        """
        fields = dict(body)
        try:
            fields["event"] = events.from_json(fields["event"])
            fields["parts"] = tuple(fields["parts"])
            fields["counts"] = None if fields["counts"] is None else tuple(fields["counts"])
            return cls(**fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"not a charge: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The sampled value of a charged step, together with its realised cost.

    Attributes:
        key: the key of its charge.
        value: JSON without infinities or NaN; a resumed run replays it.
        realised: part → [u⁻, u⁺, γ], three finite numbers of at least 0: upper bounds on the signed log-ratios of this
            outcome, and the cost as counted in the paper. Parts are those of the charge; the whole data is `WHOLE`.
            None if the mechanism has no ex-post cost.
    """

    key: str
    value: Json
    realised: Mapping[str, Sequence[float]] | None = None

    def __post_init__(self) -> None:
        check_name(self.key, "a key")
        for part, costs in (self.realised or {}).items():
            if len(costs) != _COSTS:
                raise LedgerError(
                    f"the realised cost of a part is [u_minus, u_plus, published], not {len(costs)} numbers"
                )
            for cost in costs:
                if isinstance(cost, bool) or not isinstance(cost, int | float):
                    raise LedgerError(f"a realised cost must be a float, not a {type(cost).__name__}")
                if not (math.isfinite(cost) and cost >= 0):
                    raise LedgerError(f"a realised cost (part {part!r}) must be finite and at least 0")

    def to_json(self) -> dict[str, Any]:
        """The body of the entry, in JSON types."""
        realised = None if self.realised is None else {part: list(costs) for part, costs in self.realised.items()}
        return {"key": self.key, "realised": realised, "value": self.value}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Commit:
        """The inverse of `to_json`.

        Raises:
            LedgerError: if `body` is not a commit.
        """
        try:
            return cls(**body)
        except LedgerError:
            raise
        except (AttributeError, TypeError) as error:
            raise LedgerError(f"not a commit: {error}") from None

    def check_against(self, charge: Charge) -> None:
        """Checks that the realised cost is of charged parts, and within the worst-case range of a selection.

        Raises:
            LedgerError: if it is not.
        """
        if not self.realised:
            return
        allowed = charge.times
        limit = getattr(charge.event, "range", None)
        for part, costs in self.realised.items():
            if part not in allowed:
                raise LedgerError(f"commit {self.key!r} has a realised cost for part {part!r}, which was not charged")
            if limit is not None and max(costs) > (limit + _ROOM) * allowed[part]:
                raise LedgerError(f"commit {self.key!r} has a realised cost above the range that was charged")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A committed value.

    Attributes:
        key: the step that it belongs to.
        value: what was sampled, in JSON types: a tuple comes back as a list.
        realised: part → (u⁻, u⁺, γ), or None.
    """

    key: str
    value: Any
    realised: dict[str, tuple[float, float, float]] | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Outcome:
        """Reads the body of a commit."""
        realised = body["realised"]
        if realised is not None:
            realised = {part: (costs[0], costs[1], costs[2]) for part, costs in realised.items()}
        return cls(body["key"], body["value"], realised)


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """Equal charges, merged.

    Attributes:
        event: what was charged.
        count: how often, in each of `parts`.
        native: dp_accounting's own accountants can read the event.
        run: the run that charged it.
        stage: the stage that charged it.
        partition: the partition that `parts` belong to; None for the whole data.
        parts: the parts that were charged; empty for the whole data.
    """

    event: DpEvent
    count: int
    native: bool
    run: str
    stage: str
    partition: str | None
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartCost:
    """The realised cost of the committed outcomes of one part. It depends on the private data; do not release it.

    Attributes:
        u_minus: Σ u⁻, rounded up.
        u_plus: Σ u⁺, rounded up.
        published: Σ γ, rounded up.
        count: the number of commits with a cost for this part.
    """

    u_minus: float
    u_plus: float
    published: float
    count: int

    @property
    def epsilon(self) -> float:
        """ε* of the part: the larger of the two signed sums."""
        return max(self.u_minus, self.u_plus)


class UpwardSum:
    """A sum of floats that stores only a few of them and is rounded up at the end.

    `math.fsum` is the correctly rounded sum. Adding its negative to the terms and summing again gives the rounding
    error, and so on until nothing remains: a few floats whose exact sum is that of all terms so far.
    """

    _HELD = 64

    def __init__(self) -> None:
        self._terms: list[float] = []

    def add(self, value: float) -> None:
        """Adds one finite number."""
        self._terms.append(value)
        if len(self._terms) > self._HELD:
            self._terms = _exact_parts(self._terms)

    def value(self) -> float:
        """The smallest float that is at least the exact sum."""
        parts = _exact_parts(self._terms)
        if not parts:
            return 0.0
        return math.nextafter(parts[0], math.inf) if len(parts) > 1 and parts[1] > 0 else parts[0]


def _exact_parts(terms: list[float]) -> list[float]:
    """Floats with the exact sum of `terms`, largest first, each the rounded sum of what the earlier ones leave."""
    parts: list[float] = []
    remainder = list(terms)
    while (rounded := math.fsum(remainder)) != 0:
        parts.append(rounded)
        remainder.append(-rounded)
    return parts


def check_name(name: object, what: str) -> None:
    """Checks that the name of a run, key, stage, partition or part is a short, printable, non-empty text."""
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise LedgerError(f"{what} must be a printable text of 1 to {_LONGEST_NAME} characters")


def canonical(value: object) -> str:
    """The canonical JSON text of finite numbers and JSON types: ASCII, sorted keys, no spaces, floats by `repr`."""
    _check_json(value)
    return text_of(value)


def text_of(parsed: object) -> str:
    """The canonical text of a value that was parsed from JSON; refuses infinities and NaN, which the parser accepts."""
    try:
        return json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except ValueError:
        raise LedgerError(_NOT_FINITE) from None


def _check_json(value: object) -> None:
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise LedgerError(_NOT_FINITE)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_json(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise LedgerError(f"the ledger holds objects with text keys only, not {type(key).__name__}")
            _check_json(item)
    else:
        raise LedgerError(f"the ledger holds JSON types only, not {type(value).__name__}; convert it first")

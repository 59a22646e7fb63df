"""Comparison of all accountants on one mechanism: bound, enclosure, rigor and time of each, or the reason why it has
none.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dp_accounting import DpEvent

from dpassay.accounting import events
from dpassay.accounting.accountants.alternatives import DistributionAccountant
from dpassay.accounting.accountants.base import Accountant, Unsupported
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Rigor, fields_to_json
from dpassay.accounting.events import EXAMPLES
from dpassay.accounting.ex_post.accountant import ExPost
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.registry import ACCOUNTANTS, Described, accountant, event_of, with_estimate
from dpassay.base import validate

Answers = Mapping[str, Callable[[], Sequence[Bound]]]
"""Maps a method to a function that computes its bounds, or raises `ValueError` with the reason why it has none."""

Progress = Callable[[int, int], None]
"""Called with the number of methods that have finished, and of all methods."""

Shown = Callable[[Sequence["Row"]], None]
"""Called with a method's rows as soon as they are known."""

WIDTH = 1e-6
"""Requested relative width of the certified interval; narrower than the differences between libraries."""

_LIBRARIES = (
    "scipy.fft",
    "scipy.special",
    "dp_accounting.rdp",
    "dp_accounting.pld.privacy_loss_distribution",
    "prv_accountant",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One method's bound.

    Attributes:
        bound: with rigor, assumptions and, if one is known, a two-sided enclosure.
        seconds: wall-clock time, with libraries loaded and caches empty.
        notes: warnings raised meanwhile, one sentence each.
    """

    bound: Bound
    seconds: float
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return {**self.bound.to_json(), "seconds": self.seconds, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The bounds of several methods on one quantity.

    Attributes:
        about: the mechanism in plain JSON types: an event, or the parameters of one.
        quantity: what the rows bound, as in `Bound.quantity`.
        adjacency: the neighbouring relation.
        unit: the privacy unit.
        at: the argument of the quantity: δ of an ε, p of an r.
        rows: certified bounds first, smaller values before larger ones.
        unsupported: why methods have no bound, by name.
        inapplicable: the unsupported methods that have no bound for any mechanism of this kind, whatever its
            parameters.
    """

    about: Mapping[str, Any]
    quantity: str
    adjacency: Adjacency
    unit: Unit
    at: float
    rows: tuple[Row, ...]
    unsupported: Mapping[str, str]
    inapplicable: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON types."""
        return fields_to_json(self)


def compare(
    event: Described,
    *,
    adjacency: Adjacency | str,
    delta: float,
    unit: Unit | str | None = None,
    methods: Sequence[str] | None = None,
    others: Answers | None = None,
    progress: Progress | None = None,
    shown: Shown | None = None,
) -> Comparison:
    """The bounds of every accountant on the ε of `event` at one δ; ``lattice`` to a relative `WIDTH`.

    Args:
        event: an event, a ledger or a run.
        adjacency: the neighbouring relation the event is charged for.
        delta: δ in (0, 1).
        unit: the privacy unit, by default one record.
        methods: names of accountants, by default all.
        others: further methods for this mechanism.
        progress: called as methods finish.
        shown: called with the rows of each method as it finishes, ``lattice`` first.

    Returns:
        One row per accountant; two for ``rdp`` if the orders with uncounted numerical error give less.

    Raises:
        ValueError: if an argument, or a parameter of the event, is invalid.
    """
    validate.open_probability(delta=delta)
    names = tuple(ACCOUNTANTS) if methods is None else tuple(dict.fromkeys(methods))
    described = event_of(event)
    empty = {name: accountant(name, adjacency, unit) for name in names}
    if Lattice.name in empty:
        empty = {Lattice.name: Lattice(adjacency, unit, WIDTH)} | {n: a for n, a in empty.items() if n != Lattice.name}

    def answer(chosen: Accountant[Any]) -> Callable[[], Sequence[Bound]]:
        return lambda: _epsilons(chosen, described, delta)

    answers = {name: answer(chosen) for name, chosen in empty.items()}
    rows, reasons = measure({**answers, **(others or {})}, progress, shown)
    never = tuple(name for name in reasons if name in empty and _never(empty[name], described))
    about = events.to_json(described)
    return Comparison(about, "epsilon", Adjacency(adjacency), Unit.of_text(unit), delta, rows, reasons, never)


def _never(empty: Accountant[Any], event: DpEvent) -> bool:
    """Whether the accountant has no bound for `event`, whatever its parameters; one without its library might have."""
    if isinstance(empty, DistributionAccountant) and not empty.is_installed():
        return False
    return empty.supports(event) is not None


def _epsilons(empty: Accountant[Any], event: DpEvent, delta: float) -> Sequence[Bound]:
    composed = empty.compose(event)
    if isinstance(composed, ExPost):
        raise Unsupported("ex_post needs the realised costs of a run, and an event alone has none")
    return with_estimate(composed, composed.epsilon(delta), delta)


def measure(
    answers: Answers, progress: Progress | None = None, shown: Shown | None = None
) -> tuple[tuple[Row, ...], dict[str, str]]:
    """The rows of methods that have a bound, in order, and the reasons of the others.

    Every method starts with the package's caches empty, so that none is faster because another ran before it.
    """
    for library in _LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):  # prv_accountant is optional
            import_module(library)
    rows: list[Row] = []
    reasons: dict[str, str] = {}
    for done, (name, answer) in enumerate(answers.items()):
        if progress:
            progress(done, len(answers))
        _empty_caches()
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", UserWarning)
            start = time.perf_counter()
            try:
                bounds = answer()
            except Unsupported as reason:
                reasons[name] = str(reason)
                continue
            except (ArithmeticError, MemoryError) as error:
                reasons[name] = f"{name} failed: {str(error) or type(error).__name__}"
                continue
            seconds = time.perf_counter() - start
        notes = tuple(dict.fromkeys(str(w.message) for w in raised if issubclass(w.category, UserWarning)))
        results = [Row(bound, seconds, notes) for bound in bounds]
        rows += results
        if shown:
            shown(results)
    if progress:
        progress(len(answers), len(answers))
    rows.sort(key=lambda row: (row.bound.rigor is not Rigor.CERTIFIED, row.bound.value))
    return tuple(rows), reasons


@contextmanager
def as_unsupported() -> Iterator[None]:
    """Turns the `ValueError` of a formula that does not apply into `Unsupported`, so that it becomes a reason."""
    try:
        yield
    except Unsupported:
        raise
    except ValueError as reason:
        raise Unsupported(str(reason)) from None


def _empty_caches() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("dpassay.accounting"):
            for value in list(vars(module).values()):
                if clear := getattr(value, "cache_clear", None):
                    clear()


@dataclass(frozen=True, slots=True)
class Support:
    """Whether one accountant has a bound for one kind of event at one adjacency."""

    example: str  # the kind, a key of `events.EXAMPLES`
    adjacency: Adjacency  # the neighbouring relation
    method: str  # the accountant's name
    rigor: Rigor | None  # the rigor of its bound; None if it has none
    reason: str | None  # why it has none; None if it has one

    def to_json(self) -> dict[str, Any]:
        """The answer as plain JSON types."""
        return fields_to_json(self) | {"event": type(EXAMPLES[self.example]).__name__}


def support(adjacency: Adjacency | str) -> tuple[Support, ...]:
    """Whether each accountant supports each kind of event."""
    results = []
    for name in ACCOUNTANTS:
        empty = accountant(name, adjacency, unit_of(adjacency))
        for kind, event in EXAMPLES.items():
            reason = empty.supports(event)
            rigor = None if reason else _rigor(empty.compose(event))
            results.append(Support(kind, empty.adjacency, name, rigor, reason))
    return tuple(results)


def unit_of(adjacency: Adjacency | str) -> Unit:
    """The default unit of an adjacency: one secret, or one record."""
    return Unit("secret") if adjacency == Adjacency.SECRET else Unit()


def _rigor(composed: Accountant[Any]) -> Rigor:
    """The accountant's rigor; an estimate for ``rdp`` if no order has a certified bound."""
    if isinstance(composed, RenyiAccountant) and not composed.cost.certified.any():
        return composed.estimate(1e-5).rigor
    return composed._rigor()

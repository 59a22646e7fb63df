"""The curves behind a comparison: ε against steps, δ(ε) and the trade-off β(α), each within a time limit."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.accountants.base import Unsupported
from dpassay.accounting.bounds import Bound, Rigor, fields_to_json
from dpassay.accounting.comparison.comparison import Comparison, Row
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.registry import accountant
from dpassay.base import defaults
from dpassay.base.arrays import Floats

STEPS, EPSILONS, ALPHAS = 12, 61, 61
"""Points of each curve, if the time limit allows."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One method along one argument.

    Attributes:
        method: the accountant's name.
        rigor: of the values.
        arguments: increasing.
        values: the bound at each argument: an upper bound for ε, δ and r, a lower bound for β.
        others: the other end of an enclosure of the exact value; empty if none is known.
    """

    method: str
    rigor: Rigor
    arguments: tuple[float, ...]
    values: tuple[float, ...]
    others: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The curve as plain JSON types."""
        return fields_to_json(self)


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one argument.

    Attributes:
        argument: ``steps``, ``epsilon``, ``alpha``, ``p``, ``rounds`` or ``layers``.
        quantity: ``epsilon``, ``delta``, ``beta``, ``r`` or ``noise_multiplier``.
        curves: one per method.
        notes: what is missing and why, one sentence each.
    """

    argument: str
    quantity: str
    curves: tuple[Curve, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The panel as plain JSON types."""
        return fields_to_json(self)


class Other(NamedTuple):
    """A method that is not an accountant: its ε after some steps, and its δ at some ε after all of them."""

    epsilon: Callable[[int], Bound]
    delta: Callable[[float], Bound]


def panels(
    event: DpEvent,
    comparison: Comparison,
    *,
    seconds: float = defaults.COMPARISON_SECONDS,
    others: Mapping[str, Other] | None = None,
    progress: Callable[[int, int], None] | None = None,
    in_steps: bool = True,
) -> tuple[Panel, ...]:
    """ε against the number of equal steps (if there are several), δ(ε) and β(α), of every method that gave a bound.

    Args:
        event: what `comparison` compares.
        comparison: the result of `compare` for it.
        seconds: time limit of each method in each panel; the notes of the panel list what is left out.
        others: the methods of `comparison` that are not accountants, by name.
        progress: called with the number of finished curves, and of all curves.
        in_steps: whether events that are repeated are steps of what runs.
    """
    rows = _one_row_a_method(comparison.rows)
    step, besides = _step_of(event) if in_steps else None, others or {}
    done, total = 0, len(rows) * (2 if step is None else 3)

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    results = [] if step is None else [_by_steps(step, rows, comparison, seconds, besides, tick)]
    profiles = profile_panel(event, comparison, seconds=seconds, others=besides, tick=tick)
    results += [profiles, trade_off_panel(event, comparison, profiles, tick=tick)]
    if progress:
        progress(total, total)
    return tuple(results)


def _one_row_a_method(rows: Sequence[Row]) -> list[Row]:
    """The certified row of a method that has two, so that a curve has the same rigor throughout."""
    return list({row.bound.method: row for row in reversed(rows)}.values())[::-1]


def _step_of(event: DpEvent) -> tuple[DpEvent, int] | None:
    """The step that `event` repeats at least twice, with its count; None for a composition of different events."""
    merged = events.compose([(event, 1)])
    return (merged.event, merged.count) if isinstance(merged, dp_event.SelfComposedDpEvent) else None


def _by_steps(
    step: tuple[DpEvent, int],
    rows: Sequence[Row],
    comparison: Comparison,
    seconds: float,
    others: Mapping[str, Other],
    tick: Callable[[], None],
) -> Panel:
    event, most = step

    def after(name: str) -> Callable[[float], Bound]:
        if name in others:
            return lambda count: others[name].epsilon(round(count))
        empty = accountant(name, comparison.adjacency, comparison.unit)
        return lambda count: empty.compose(event, round(count)).epsilon(comparison.at)

    return traced("steps", "epsilon", rows, after, counts_to(most), seconds, shown="ε", known=float(most), tick=tick)


def counts_to(most: int) -> list[float]:
    """Some whole numbers from 1 to `most`."""
    return sorted({float(round(count)) for count in np.geomspace(1, most, STEPS)})


def traced(
    argument: str,
    quantity: str,
    rows: Sequence[Row],
    ask_of: Callable[[str], Callable[[float], Bound]],
    arguments: Sequence[float],
    seconds: float,
    *,
    shown: str,
    known: float | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Panel:
    """The bounds of every method of `rows`, by `trace`; at the argument `known` they are those of `rows`."""
    curves, notes = [], []
    for row in rows:
        name = row.bound.method
        curve, missing = trace(row, ask_of(name), arguments, seconds, {} if known is None else {known: row.bound})
        curves.append(curve)
        notes += [f"{name}: {shown} at {missing}"] if missing else []
        tick()
    return Panel(argument, quantity, tuple(curves), tuple(notes))


def profile_panel(
    event: DpEvent,
    comparison: Comparison,
    *,
    seconds: float = defaults.COMPARISON_SECONDS,
    others: Mapping[str, Other] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Panel:
    """δ(ε) of every method that gave a bound, from 0 to 1.5 times the least ε; arguments are those of `panels`."""
    rows, others = _one_row_a_method(comparison.rows), others or {}
    finite = [row.bound.value for row in rows if 0 < row.bound.value < np.inf]
    epsilons = np.linspace(0, 1.5 * min(finite, default=1.0), EPSILONS)
    curves, notes = [], []
    for row in rows:
        name = row.bound.method
        if name == "lattice":
            pair = Lattice(comparison.adjacency, comparison.unit).compose(event).pair
            lower, upper = pair.privacy_profile(epsilons)
            curves.append(curve_of(name, row.bound.rigor, epsilons, upper, lower if pair.tight else None))
        elif row.seconds > seconds:
            notes.append(
                f"{name} has no δ(ε) and no β(α) here: one bound took {row.seconds:.1f} s, above {seconds:g} s"
            )
        else:
            if name in others:
                ask = others[name].delta
            else:
                ask = accountant(name, comparison.adjacency, comparison.unit).compose(event).delta
            curve, note = trace(row, ask, [float(epsilon) for epsilon in epsilons], seconds)
            curves.append(curve)
            notes += [f"{name}: δ at {note}"] if note else []
        tick()
    return Panel("epsilon", "delta", tuple(curves), tuple(notes))


def trade_off_panel(
    event: DpEvent,
    comparison: Comparison,
    profiles: Panel,
    *,
    alphas: Floats | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Panel:
    """β(α) of every method of `profile_panel`.

    Args:
        event: what `comparison` compares.
        comparison: the result of `compare` for it.
        profiles: the result of `profile_panel` for both.
        alphas: increasing type I errors in (0, 1); None for some of all sizes.
        tick: called after each curve.
    """
    if alphas is None:
        alphas = np.concatenate([np.geomspace(min(1e-6, comparison.at), 0.5, ALPHAS), [0.7, 0.9, 0.99, 0.999, 0.9999]])
    curves, missing = [], list(profiles.notes)
    for profile in profiles.curves:
        if profile.method == "lattice":
            pair = Lattice(comparison.adjacency, comparison.unit).compose(event).pair
            lower, upper = pair.trade_off(alphas)
            curves.append(curve_of(profile.method, profile.rigor, alphas, lower, upper if pair.tight else None))
        elif profile.method == "prv":
            missing.append("prv has no trade-off curve: it composes one direction of the adjacency only")
        else:
            betas = trade_off_of_profile(np.array(profile.arguments), np.array(profile.values), alphas)
            curves.append(curve_of(profile.method, profile.rigor, alphas, betas, None))
        tick()
    return Panel("alpha", "beta", tuple(curves), tuple(missing))


def trade_off_of_profile(epsilons: Floats, deltas: Floats, alphas: Floats) -> Floats:
    """Lower bounds on the type II error at each type I error, from upper bounds δ on a profile at some ε ≥ 0.

    β ≥ max(0, 1 − δ − e^ε α, e^{−ε}(1 − δ − α)) for every (ε, δ); the best of the given ones. Three roundings of
    numbers of at most 1 are subtracted.

    Source: Wasserman and Zhou (2010); Kairouz, Oh and Viswanath (2015).
    """
    epsilon, delta = epsilons[:, None], deltas[:, None]
    lines = np.maximum(1 - delta - np.exp(epsilon) * alphas, np.exp(-epsilon) * (1 - delta - alphas))
    return np.asarray(np.maximum(0.0, lines.max(axis=0) - 1e-15))


def curve_of(method: str, rigor: Rigor, arguments: Floats, values: Floats, others: Floats | None) -> Curve:
    """A curve of arrays."""
    ends = () if others is None else tuple(map(float, others))
    return Curve(method, rigor, tuple(map(float, arguments)), tuple(map(float, values)), ends)


def trace(
    row: Row,
    ask: Callable[[float], Bound],
    arguments: Sequence[float],
    seconds: float,
    known: dict[float, Bound] | None = None,
) -> tuple[Curve, str]:
    """The bounds at increasing `arguments`, coarse ones first, until the time limit; and a text of what is missing.

    Bounds that are `known` are not asked for. `row` is the method's row in the comparison.
    """
    answers = dict(known or {})
    end = math.inf
    stopped = f"{seconds:g} s were up"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a wide enclosure is visible in its band
        for argument in coarse_first(arguments):
            if argument in answers:
                continue
            if row.seconds > seconds or time.perf_counter() > end:
                break
            try:
                answers[argument] = ask(argument)
            except Unsupported as reason:
                stopped = str(reason)
                break
            # The clock starts after the first bound, which may include all the work of a composition.
            end = min(end, time.perf_counter() + seconds)
    result = sorted(answers.items())
    intervals = [bound.interval for _, bound in result if bound.interval is not None]
    others = tuple(interval.lower for interval in intervals) if len(intervals) == len(result) else ()
    curve = Curve(
        row.bound.method,
        row.bound.rigor,
        tuple(argument for argument, _ in result),
        tuple(bound.value for _, bound in result),
        others,
    )
    missing = len(arguments) - len(result)
    return curve, f"{len(result)} of {len(arguments)} points, then {stopped}" if missing else ""


def coarse_first(values: Sequence[float]) -> list[float]:
    """The ends, then the middle, then the middles of the halves, and so on."""
    order, gaps = [len(values) - 1, 0], [(0, len(values) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [values[index] for index in dict.fromkeys(order)]

"""Compares the bounds of all accountants on one mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from dp_accounting import DpEvent

from dpassay.accounting.adjacency import RECORD_RELATIONS, Adjacency, Unit
from dpassay.accounting.bounds import Bound, Rigor, Risk
from dpassay.accounting.comparison.comparison import Answers, Comparison, Row, compare, unit_of
from dpassay.accounting.comparison.curves import Other, Panel, panels
from dpassay.accounting.comparison.releases import (
    compare_layers,
    compare_secret,
    layer_panels,
    secret_panels,
)
from dpassay.accounting.comparison.risks import on_run, risks
from dpassay.accounting.interop.state import Stated
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.names import METHODS
from dpassay.accounting.registry import ACCOUNTANTS, account
from dpassay.base import defaults, validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_duration, format_number, format_upper
from dpassay.base.outputs import check_output
from dpassay.base.progress import Progress
from dpassay.jobs.drawings import check_drawing, write_drawing
from dpassay.jobs.inputs import StatementWords, open_inputs
from dpassay.jobs.mechanisms import Mechanism, Secret, Vectors

_EXACT = Basis()


@dataclass(frozen=True)
class ComparisonSettings:
    """How accountants are compared, for every mechanism.

    Attributes:
        methods: names of accountants; empty for all.
        output: path of the figure, which ends in .svg, .pdf or .png; None for no figure and no curves.
        title: of the figure; empty for the mechanism in words.
        seconds: time limit of each accountant in each panel of the figure.
        prior: the probability that the unit is in the data, for who guesses, in (0, 1).
        progress: where to show progress.
    """

    methods: Sequence[str] = ()
    output: Path | None = None
    title: str = ""
    seconds: float = defaults.COMPARISON_SECONDS
    prior: float = defaults.PRIOR
    progress: Progress = field(default_factory=Progress)

    def check(self, methods: Sequence[str] = METHODS) -> None:
        """Raises `ValueError` for invalid settings, before any work is done; `methods` are the allowed accountants."""
        for method in self.methods:
            validate.one_of(methods, method=method)
        validate.positive(seconds=self.seconds)
        validate.open_probability(prior=self.prior)
        check_drawing(self.output, self.title)


@dataclass(frozen=True)
class TakenFor:
    """The bound of what a run is often accounted as, and is not.

    Attributes:
        words: what it is taken for.
        bound: of that.
    """

    words: str
    bound: Bound

    def to_json(self) -> dict[str, Any]:
        """As plain JSON types."""
        return {"as": self.words, "bound": self.bound.to_json()}


@dataclass(frozen=True)
class Compared:
    """A comparison of accountants on one mechanism.

    Attributes:
        about: the mechanism, in words.
        comparison: a row for each accountant.
        taken_for: the bound of what it is often accounted as; None if it is accounted as what it is.
        risks: what the loss means for who is attacked, by ``lattice``; empty where it was not asked or has no bound.
        panels: curves; empty unless a figure was asked for.
        assumptions: of all bounds, in sentences.
        figure: path of the figure, or None.
    """

    about: str
    comparison: Comparison
    risks: tuple[Risk, ...] = ()
    panels: tuple[Panel, ...] = ()
    assumptions: tuple[str, ...] = ()
    figure: Path | None = None
    taken_for: TakenFor | None = None

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON types; curves only if a figure was asked for."""
        out = {"mechanism": self.about, **self.comparison.to_json(), "assumptions": list(self.assumptions)}
        if self.taken_for is not None:
            out |= {"taken_for": self.taken_for.to_json()}
        if self.risks:
            out |= {"risks": [risk.to_json() for risk in self.risks]}
        if self.figure is not None:
            out |= {"panels": [panel.to_json() for panel in self.panels], "figure": str(self.figure)}
        return out


def compare_mechanism(
    mechanism: Mechanism,
    at: float,
    *,
    adjacency: str | None = None,
    unit: Unit | None = None,
    settings: ComparisonSettings,
) -> Compared:
    """The bounds of all accountants on one mechanism; an `InputError` for parameters out of range.

    Args:
        mechanism: with its parameters.
        at: what the bounds are at: δ, or for a secret the probability p of guessing it before, in (0, 1).
        adjacency: which data sets are neighbours; None for the mechanism's own default.
        unit: what is protected; None for one record, or one secret.
        settings: how to compare.
    """
    adjacency = mechanism.adjacency if adjacency is None else adjacency
    match mechanism:
        case Secret():
            return _secret(mechanism, at, settings)
        case Vectors():
            return _vectors(mechanism, at, adjacency, settings)
    with input_errors():
        settings.check(mechanism.methods)
        relation = _relation(adjacency, at)
        event = mechanism.event(relation)
    others = mechanism.others(relation, at)
    if settings.methods and set(settings.methods) <= set(METHODS):
        others = {}, {}
    unit = unit or Unit()
    if unit.is_group:  # other methods answer for one record
        others = {}, {}
    about = mechanism.in_words(relation)
    result = _compare_event(
        event,
        about,
        relation,
        unit,
        at,
        settings,
        mechanism.assumptions,
        others,
        basis=Basis(exact=mechanism.attained()),
        in_steps=mechanism.in_steps,
    )
    if (known := mechanism.taken_for()) is None:
        return result
    words, other = known
    bound = account(other, adjacency=relation, delta=at, unit=unit)
    return replace(result, taken_for=TakenFor(words, bound))


def _secret(secret: Secret, p: float, settings: ComparisonSettings) -> Compared:
    """The posterior probability r of guessing a secret."""
    with input_errors():
        settings.check(secret.methods)
        validate.open_probability(p=p)
        secret.event(secret.adjacency)
        release = secret.release(secret.adjacency)
    with settings.progress.stage("accountants") as step:
        methods = settings.methods or secret.methods
        result = compare_secret(release, p, secret.rounds, methods=methods, progress=step)
    drawn = settings.output is not None
    curves = secret_panels(release, secret.rounds, result, seconds=settings.seconds) if drawn else ()
    assumptions = result.rows[0].bound.assumptions if result.rows else ()
    return _with_figure(Compared(secret.in_words(secret.adjacency), result, (), curves, assumptions), settings)


def _vectors(vectors: Vectors, delta: float, adjacency: str, settings: ComparisonSettings) -> Compared:
    """The noise that an ε needs for the vectors of several layers, or the ε of a noise."""
    with input_errors():
        settings.check(vectors.methods)
        relation = _relation(adjacency, delta)
        released = vectors.released(relation)
    asked = {"epsilon": vectors.epsilon, "sigma": vectors.sigma}
    with settings.progress.stage("accountants") as step:
        methods = settings.methods or vectors.methods
        result = compare_layers(released, delta=delta, methods=methods, progress=step, **asked)
    drawn = settings.output is not None
    curves = layer_panels(released, result, seconds=settings.seconds, **asked) if drawn else ()
    return _with_figure(Compared(vectors.in_words(relation), result, (), curves, vectors.notes(relation)), settings)


def ledgers(
    paths: Sequence[Path],
    *,
    delta: float,
    settings: ComparisonSettings,
    anchor: Path | None = None,
    **statements: Unpack[StatementWords],
) -> Compared:
    """The bounds of all accountants on what ledgers were charged, and on files of other libraries.

    Args and errors are those of `dpassay.account`, and the unit must not be a secret.
    """
    with input_errors():
        settings.check()
        check_output(settings.output, (*paths, anchor))
        validate.open_probability(delta=delta)
        with open_inputs(paths, Stated.of(**statements), anchor=anchor) as inputs:
            if inputs.unit.is_secret:
                raise InputError(
                    "these ledgers protect secrets; only one accountant bounds r for them, so use dpassay account"
                )
            event, bases = inputs.charged, [basis for _, basis in inputs.bases]
            notes = [note for each in zip(inputs.ledgers, bases, strict=True) for note in _ledger_assumptions(*each)]
    readings = [reading for _, _, reading in inputs.readings]
    notes += [
        f"{path.name}: {item}"
        for path, _, reading in inputs.readings
        for item in (*reading.hints, *reading.assumptions)
    ]
    about = f"{', '.join(path.name for path in paths)}: what was charged"
    estimates = tuple(item for basis in bases for item in basis.estimates)
    exact = all(basis.exact for basis in bases) and all(reading.exact for reading in readings)
    total = Basis(estimates=estimates, exact=exact)
    return _compare_event(event, about, inputs.adjacency, inputs.unit, delta, settings, tuple(notes), basis=total)


def _ledger_assumptions(ledger: Ledger, basis: Basis) -> list[str]:
    """What the comparison assumes about a ledger."""
    name = ledger.path.name
    notes = [
        f"{name}: run {run!r} is unfinished; its charges so far are compared, not its whole plan."
        for run in ledger.runs()
        if not ledger.run(run).finished
    ]
    if not ledger.anchored:
        notes.append(f"{name}: no anchor of this ledger was found, so a restored or rewritten file would not show.")
    notes += [f"{name}: assumed: {item}" for item in basis.assumptions]
    notes += [f"an estimate: {item}" for item in basis.estimates]
    return notes


def _relation(adjacency: str, delta: float) -> Adjacency:
    validate.open_probability(delta=delta)
    return Adjacency(validate.one_of(RECORD_RELATIONS, adjacency=adjacency))


def _compare_event(
    event: DpEvent,
    about: str,
    adjacency: Adjacency,
    unit: Unit,
    delta: float,
    settings: ComparisonSettings,
    assumptions: tuple[str, ...] = (),
    others: tuple[Answers, Mapping[str, Other]] = ({}, {}),
    *,
    basis: Basis = _EXACT,
    in_steps: bool = True,
) -> Compared:
    asked = [name for name in settings.methods or ACCOUNTANTS if name in ACCOUNTANTS]

    def shown(rows: Sequence[Row]) -> None:
        for row in rows:
            value = format_upper(row.bound.value)
            sign = "≤" if row.bound.rigor is Rigor.CERTIFIED else "≈"
            settings.progress.note(
                f"{row.bound.method}: ε {sign} {value} ({row.bound.rigor}, {format_duration(row.seconds)})"
            )

    with settings.progress.stage("accountants") as step:
        result = compare(
            event,
            adjacency=adjacency,
            delta=delta,
            unit=unit,
            methods=asked,
            others=others[0],
            progress=step,
            shown=shown,
        )
    known: tuple[Risk, ...] = ()
    if any(row.bound.method == Lattice.name and row.bound.value < math.inf for row in result.rows):
        with settings.progress.stage("risks"):
            known = risks(event, adjacency=adjacency, delta=delta, unit=unit, prior=settings.prior)
    curves: tuple[Panel, ...] = ()
    if settings.output is not None:
        with settings.progress.stage("curves") as step:
            curves = panels(event, result, seconds=settings.seconds, others=others[1], progress=step, in_steps=in_steps)
    of_bounds = [item for row in result.rows for item in row.bound.assumptions]
    said = tuple(dict.fromkeys((*assumptions, *of_bounds)))
    result = replace(result, rows=tuple(replace(row, bound=basis.under(row.bound)) for row in result.rows))
    known = on_run(known, basis)
    if not basis.exact:  # the event may cost more than what it stands for, so other ends say nothing of that
        curves = tuple(
            replace(panel, curves=tuple(replace(curve, others=()) for curve in panel.curves)) for panel in curves
        )
    return _with_figure(Compared(about, result, known, curves, said), settings)


def _with_figure(compared: Compared, settings: ComparisonSettings) -> Compared:
    """`compared` with its figure drawn, if one was asked for; an `InputError` if no accountant has a bound."""
    result = compared.comparison
    if not result.rows:
        reasons = "; ".join(result.unsupported.values())
        raise InputError(f"no accountant that was asked has a bound here: {reasons}")
    if settings.output is None:
        return compared
    from dpassay.reports.comparison import figure, image, standalone

    title = settings.title or f"{compared.about}; {relation_in_words(result)}"

    def draw(kind: str) -> str | bytes:
        if kind == "svg":
            return standalone(figure(result, compared.panels, title))
        return image(compared.panels, title, kind)

    write_drawing(settings.output, draw)
    return replace(compared, figure=settings.output)


def relation_in_words(result: Comparison) -> str:
    """Adjacency, unit, and the δ or p of a comparison, in words."""
    at = "p" if result.quantity == "r" else "δ"
    unit = "" if result.unit == unit_of(result.adjacency) else f", unit {result.unit}"
    return f"{result.adjacency}{unit}, {at} = {format_number(result.at)}"

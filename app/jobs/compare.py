"""Compares the bounds of all accountants on one mechanism."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.comparison.comparison import Answers, Comparison, Row, compare, unit_of
from dpassay.accounting.comparison.curves import Other, Panel, panels
from dpassay.accounting.comparison.releases import (
    LAYER_METHODS,
    SECRET_METHODS,
    Layers,
    compare_layers,
    compare_secret,
    layer_panels,
    secret_panels,
    selection_answers,
)
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, SecretReleaseDpEvent
from dpassay.accounting.gaussian import mean_sensitivity
from dpassay.accounting.ledger.evidence import Basis, estimate_reasons, inherited_assumptions, is_exact, left_open
from dpassay.accounting.ledger.ledger import Ledger, common_relation, compose_ledgers, open_ledgers, relation_of
from dpassay.accounting.registry import ACCOUNTANTS
from dpassay.accounting.secret_protection.accountant import secret_release
from dpassay.base import defaults, validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_number, format_upper
from dpassay.base.outputs import check_output
from dpassay.base.private_files import write_atomically
from dpassay.base.progress import Progress
from dpassay.jobs.foreign_files import (
    check_stated,
    check_statements_used,
    is_foreign,
    readings_of,
    statements,
    states_in,
)

MOST_RELEASES = 10**9
"""The most steps, releases, selections or rounds of a mechanism."""
MOST_OCCURRENCES = 10**6

_RECORD = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT)
_POISSON = (
    "Each batch is a Poisson sample: every record is in it with the sampling probability, independently. Shuffled "
    "batches and batches of a fixed size are other mechanisms, and none of these bounds holds for them."
)


@dataclass(frozen=True)
class ComparisonSettings:
    """How accountants are compared, for every mechanism.

    Attributes:
        methods: names of accountants; empty for all.
        output: path of the figure, which ends in .svg; None for no figure and no curves.
        seconds: time limit of each accountant in each panel of the figure.
        progress: where to show progress.
    """

    methods: Sequence[str] = ()
    output: Path | None = None
    seconds: float = defaults.COMPARISON_SECONDS
    progress: Progress = field(default_factory=Progress)

    def check(self, methods: Sequence[str] = tuple(ACCOUNTANTS)) -> None:
        """Raises `ValueError` for invalid settings, before any work is done; `methods` are the allowed accountants."""
        for method in self.methods:
            validate.one_of(methods, method=method)
        validate.positive(seconds=self.seconds)
        if self.output is not None and self.output.suffix.lower() != ".svg":
            raise ValueError(f"the figure is written as SVG, so --output must end in .svg, not {self.output.name!r}")
        if self.output is not None and not self.output.parent.is_dir():
            raise ValueError(f"{self.output.parent}: there is no such folder to write the figure to")
        if self.output is not None and self.output.is_dir():
            raise ValueError(f"{self.output}: is a directory; name a file for the figure")
        check_output(self.output, ())


@dataclass(frozen=True)
class Compared:
    """A comparison of accountants on one mechanism.

    Attributes:
        about: the mechanism, in words.
        comparison: a row for each accountant.
        panels: curves; empty unless a figure was asked for.
        assumptions: of all bounds, in sentences.
        figure: path of the figure, or None.
    """

    about: str
    comparison: Comparison
    panels: tuple[Panel, ...] = ()
    assumptions: tuple[str, ...] = ()
    figure: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON types; curves only if a figure was asked for."""
        out = {"mechanism": self.about, **self.comparison.to_json(), "assumptions": list(self.assumptions)}
        if self.figure is not None:
            out |= {"panels": [panel.to_json() for panel in self.panels], "figure": str(self.figure)}
        return out


def dp_sgd(
    noise_multiplier: float,
    sampling_probability: float,
    steps: int,
    *,
    adjacency: str,
    delta: float,
    settings: ComparisonSettings,
) -> Compared:
    """DP-SGD with Poisson-sampled batches.

    Raises:
        InputError: for parameters out of range.
    """
    with input_errors():
        event = dp_sgd_event(noise_multiplier, sampling_probability, steps)
        relation = _relation(adjacency, delta, settings)
    about = (
        f"DP-SGD, noise multiplier {format_number(noise_multiplier)}, sampling probability "
        f"{format_number(sampling_probability)}, {steps} steps"
    )
    return _compare_event(event, about, relation, Unit(), delta, settings, (_POISSON,))


def dp_sgd_event(noise_multiplier: float, sampling_probability: float, steps: int) -> DpEvent:
    """`steps` Gaussian sums over Poisson samples.

    Raises:
        ValueError: for parameters out of range.
    """
    validate.positive(noise_multiplier=noise_multiplier)
    validate.positive(sampling_probability=validate.probability(sampling_probability=sampling_probability))
    validate.integer(minimum=1, maximum=MOST_RELEASES, steps=steps)
    step = dp_event.PoissonSampledDpEvent(sampling_probability, dp_event.GaussianDpEvent(noise_multiplier))
    return dp_event.SelfComposedDpEvent(step, steps)


def gaussian(
    noise_multiplier: float, count: int, *, adjacency: str, delta: float, settings: ComparisonSettings
) -> Compared:
    """Gaussian releases of the whole data set.

    Raises:
        InputError: for parameters out of range.
    """
    with input_errors():
        event = gaussian_event(noise_multiplier, count)
        relation = _relation(adjacency, delta, settings)
    about = f"Gaussian noise, multiplier {format_number(noise_multiplier)}, {count} releases"
    return _compare_event(event, about, relation, Unit(), delta, settings)


def gaussian_event(noise_multiplier: float, count: int) -> DpEvent:
    """`count` Gaussian releases.

    Raises:
        ValueError: for parameters out of range.
    """
    validate.positive(noise_multiplier=noise_multiplier)
    validate.integer(minimum=1, maximum=MOST_RELEASES, count=count)
    return dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(noise_multiplier), count)


def selection(eta: float, count: int, *, adjacency: str, delta: float, settings: ComparisonSettings) -> Compared:
    """Bounded-range selections, such as tokens drawn by softmax.

    Raises:
        InputError: for parameters out of range.
    """
    with input_errors():
        event = selection_event(eta, count)
        relation = _relation(adjacency, delta, settings, "adaptive")
    about = f"selection of bounded range η = {format_number(eta)}, {count} times"
    answers, curves = selection_answers(eta, count, delta, relation)
    wanted = not settings.methods or "adaptive" in settings.methods
    return _compare_event(
        event, about, relation, Unit(), delta, settings, others=(answers, curves) if wanted else ({}, {})
    )


def selection_event(eta: float, count: int) -> DpEvent:
    """`count` selections of bounded range `eta`.

    Raises:
        ValueError: for parameters out of range.
    """
    validate.integer(minimum=1, maximum=MOST_RELEASES, count=count)
    return dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(eta), count)


def softmax_range(clip: float, temperature: float, batch_size: int, adjacency: str) -> float:
    """η of softmax at temperature τ over the sum of logits clipped to [−c, c], divided by a public batch size s.

    Adding or removing a record changes a score by at most c/s, so η = 2c/(sτ); exchanging one, by at most 2c/s, so
    η = 4c/(sτ).

    Raises:
        ValueError: if a parameter is out of range, or under zero_out, where η depends on the null record's logits.
    """
    validate.positive(clip=clip)
    validate.positive(temperature=temperature)
    validate.integer(minimum=1, batch_size=batch_size)
    if adjacency == Adjacency.ZERO_OUT:
        raise ValueError("under zero_out η depends on the logits of the null record: give --eta instead of --clip")
    factor = 4 if adjacency == Adjacency.REPLACE_ONE else 2
    return factor * clip / (batch_size * temperature)


def secret(
    release: SecretReleaseDpEvent, *, p: float, rounds: int, about: str, settings: ComparisonSettings
) -> Compared:
    """Noisy releases in which a secret may occur: the posterior probability r of guessing it.

    Raises:
        InputError: for parameters out of range.
    """
    with input_errors():
        settings.check(SECRET_METHODS)
        validate.open_probability(p=p)
        validate.integer(minimum=1, maximum=MOST_RELEASES, rounds=rounds)
    with settings.progress.stage("accountants") as step:
        found = compare_secret(release, p, rounds, methods=settings.methods or SECRET_METHODS, progress=step)
    curves: tuple[Panel, ...] = ()
    if settings.output is not None:
        curves = secret_panels(release, rounds, found, seconds=settings.seconds)
    return _with_figure(Compared(about, found, curves, found.rows[0].bound.assumptions if found.rows else ()), settings)


def vectors(
    layers: int,
    clip: float,
    records: int,
    *,
    epsilon: float | None,
    sigma: float | None,
    adjacency: str,
    delta: float,
    settings: ComparisonSettings,
) -> Compared:
    """Means of several layers' vectors with Gaussian noise: the noise that an ε needs, or the ε of a noise.

    Raises:
        InputError: for parameters out of range.
    """
    with input_errors():
        settings.check(LAYER_METHODS)
        relation = _relation(adjacency, delta, replace(settings, methods=()))
        released = Layers(layers, clip, records, relation)
        if (epsilon is None) == (sigma is None):
            raise ValueError("give either --epsilon, to ask for the noise, or --sigma, to ask for the ε")
        validate.positive(**({"sigma": sigma} if sigma is not None else {"epsilon": epsilon}))
    asked = {"epsilon": epsilon, "sigma": sigma}
    with settings.progress.stage("accountants") as step:
        methods = settings.methods or LAYER_METHODS
        found = compare_layers(released, delta=delta, methods=methods, progress=step, **asked)
    curves: tuple[Panel, ...] = ()
    if settings.output is not None:
        curves = layer_panels(released, found, seconds=settings.seconds, **asked)
    given = f"σ = {format_number(sigma)} on each coordinate"
    if epsilon is not None:
        given = f"ε = {format_number(epsilon)} in all"
    about = f"means of {layers} layers over {records} records, clip {format_number(clip)}, {given}"
    sensitivity = float(mean_sensitivity(clip, records, relation))
    units = f"The standard deviation of the noise is the noise multiplier times {format_upper(sensitivity)}, the "
    notes = (units + "sensitivity of the mean of one layer.",) if epsilon is not None else ()
    return _with_figure(Compared(about, found, curves, notes), settings)


def secret_of(
    sigma: float, occurrences: int | None, sampling_probability: float | None, weights: str | None
) -> SecretReleaseDpEvent:
    """A release in which the secret occurs a random number of times.

    Args:
        sigma: noise, for occurrences that contribute at most 1.
        occurrences: number of records that hold the secret.
        sampling_probability: of each of them.
        weights: instead of these two, probabilities of 0, 1, … occurrences, separated by commas.

    Raises:
        InputError: if a parameter is missing, superfluous or out of range.
    """
    with input_errors():
        validate.non_negative(sigma=sigma)
        if weights is not None and occurrences is None and sampling_probability is None:
            try:
                numbers = tuple(float(weight) for weight in weights.split(","))
            except ValueError:
                raise ValueError(f"weights must be probabilities with commas between them, not {weights!r}") from None
            return SecretReleaseDpEvent(sigma, numbers)
        if weights is not None or occurrences is None or sampling_probability is None:
            raise ValueError("give either --weights, or both of --occurrences and --sampling-probability")
        validate.integer(minimum=1, maximum=MOST_OCCURRENCES, occurrences=occurrences)
        validate.probability(sampling_probability=sampling_probability)
        return secret_release(sigma, [sampling_probability] * occurrences)


def ledgers(
    paths: Sequence[Path],
    *,
    delta: float,
    settings: ComparisonSettings,
    adjacency: str | None = None,
    sampler: str | None = None,
    records: int | None = None,
    unit: str | None = None,
    normalizer: str | None = None,
    conditions: Collection[str] = (),
    anchor: Path | None = None,
) -> Compared:
    """The charges of one or several ledgers, and of files of other libraries.

    Args:
        paths: of ledgers over one data set, and of files of other libraries about it.
        delta: δ in (0, 1).
        settings: how to compare.
        adjacency, sampler, records, unit, normalizer, conditions: what files of other libraries do not record, as for
            `dpassay.account`.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.

    Raises:
        InputError: if a file is not a ledger or does not verify, adjacencies differ, the unit is a secret, or a
            parameter is out of range.
    """
    with input_errors():
        settings.check()
        check_output(settings.output, (*paths, anchor))
        validate.open_probability(delta=delta)
        foreign = [path for path in paths if is_foreign(path)]
        stated = statements(adjacency, sampler, records, unit, normalizer, conditions)
        check_stated(foreign, stated)
        with open_ledgers([path for path in paths if path not in foreign], anchor=anchor) as opened:
            relations = [(str(opened[0].path), relation_of(opened))] if opened else []
            readings = readings_of(states_in(foreign), stated, relations)
            check_statements_used(stated, readings, [one for ledger in opened for one in left_open(ledger)])
            relation, of = common_relation(relations)
            if of.is_secret:
                raise InputError(
                    "these ledgers protect secrets; only one accountant bounds r for them, so use dpassay account"
                )
            parts = [(compose_ledgers(opened), 1)] if opened else []
            event = events.compose([*parts, *((reading.event, 1) for _, _, reading in readings)])
            notes = [note for ledger in opened for note in _ledger_assumptions(ledger)]
            estimates = tuple(reason for ledger in opened for reason in estimate_reasons(ledger))
            exact = all(map(is_exact, opened)) and all(reading.exact for _, _, reading in readings)
    notes += [f"{path.name}: {one}" for path, _, reading in readings for one in (*reading.hints, *reading.assumptions)]
    about = f"{', '.join(path.name for path in paths)}: what was charged"
    found = _compare_event(event, about, relation, of, delta, settings, tuple(notes))
    basis = Basis(estimates=estimates, exact=exact)
    rows = tuple(replace(row, bound=basis.under(row.bound)) for row in found.comparison.rows)
    return replace(found, comparison=replace(found.comparison, rows=rows))


def _ledger_assumptions(ledger: Ledger) -> list[str]:
    """What the comparison assumes about a ledger."""
    name = ledger.path.name
    notes = [
        f"{name}: run {run!r} is unfinished; its charges so far are compared, not its whole plan."
        for run in ledger.runs()
        if not ledger.run(run).finished
    ]
    if not ledger.anchored:
        notes.append(f"{name}: no anchor of this ledger was found, so a restored or rewritten file would not show.")
    notes += [f"{name}: assumed: {one}" for one in inherited_assumptions(ledger)]
    notes += [f"an estimate: {one}" for one in estimate_reasons(ledger)]
    return notes


def _relation(adjacency: str, delta: float, settings: ComparisonSettings, *besides: str) -> Adjacency:
    settings.check((*ACCOUNTANTS, *besides))
    validate.open_probability(delta=delta)
    return Adjacency(validate.one_of(tuple(str(relation) for relation in _RECORD), adjacency=adjacency))


def _compare_event(
    event: DpEvent,
    about: str,
    adjacency: Adjacency,
    unit: Unit,
    delta: float,
    settings: ComparisonSettings,
    assumptions: tuple[str, ...] = (),
    others: tuple[Answers, Mapping[str, Other]] = ({}, {}),
) -> Compared:
    asked = [name for name in settings.methods or ACCOUNTANTS if name in ACCOUNTANTS]

    def shown(rows: Sequence[Row]) -> None:
        for row in rows:
            value = format_upper(row.bound.value)
            sign = "≤" if row.bound.rigor is Rigor.CERTIFIED else "≈"
            settings.progress.note(f"{row.bound.method}: ε {sign} {value} ({row.bound.rigor}, {duration(row.seconds)})")

    with settings.progress.stage("accountants") as step:
        found = compare(
            event,
            adjacency=adjacency,
            delta=delta,
            unit=unit,
            methods=asked,
            others=others[0],
            progress=step,
            shown=shown,
        )
    curves: tuple[Panel, ...] = ()
    if settings.output is not None:
        with settings.progress.stage("curves") as step:
            curves = panels(event, found, seconds=settings.seconds, others=others[1], progress=step)
    return _with_figure(Compared(about, found, curves, assumptions), settings)


def _with_figure(compared: Compared, settings: ComparisonSettings) -> Compared:
    """`compared` with its figure drawn, if one was asked for.

    Raises:
        InputError: if none of the accountants has a bound, or the figure cannot be written.
    """
    found = compared.comparison
    if not found.rows:
        reasons = "; ".join(found.unsupported.values())
        raise InputError(f"no accountant that was asked has a bound here: {reasons}")
    if settings.output is None:
        return compared
    from dpassay.reports.comparison import figure, standalone

    drawing = standalone(figure(found, compared.panels, f"{compared.about}; {relation_in_words(found)}"))
    with input_errors():
        write_atomically(settings.output, drawing, 0o644)
    return Compared(compared.about, found, compared.panels, compared.assumptions, settings.output)


def relation_in_words(found: Comparison) -> str:
    """Adjacency, unit, and the δ or p of a comparison, in words."""
    at = "p" if found.quantity == "r" else "δ"
    unit = "" if found.unit == unit_of(found.adjacency) else f", unit {found.unit}"
    return f"{found.adjacency}{unit}, {at} = {format_number(found.at)}"


def duration(seconds: float) -> str:
    """A time with its unit."""
    return f"{seconds:.1f} s" if seconds >= 0.9995 else f"{max(seconds * 1000, 0.1):.3g} ms"

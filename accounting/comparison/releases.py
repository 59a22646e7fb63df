"""Comparisons for mechanisms outside the registry: adaptive selections, guesses of a secret, vectors of layers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting import dp_event

from dpassay.accounting import events, gaussian
from dpassay.accounting.accountants.base import Unsupported
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.comparison.comparison import Answers, Comparison, Progress, as_unsupported, measure
from dpassay.accounting.comparison.curves import Other, Panel, counts_to, traced
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import SecretReleaseDpEvent
from dpassay.accounting.names import LAYER_METHODS, SECRET_METHODS
from dpassay.accounting.secret_protection.accountant import SecretProtectionAccountant
from dpassay.accounting.secret_protection.conversions import compose_curves
from dpassay.accounting.secret_protection.noise import single_gaussian_estimate
from dpassay.accounting.selection import bounded_range
from dpassay.base import defaults, validate
from dpassay.base.arrays import Floats

_CURVE_POINTS, _FIGURE_POINTS = 193, 17
_MAX_ROUNDS = 1000  # of the majorant, which composes one round at a time


def selection_answers(
    eta: float, count: int, delta: float, adjacency: Adjacency | str
) -> tuple[Answers, dict[str, Other]]:
    """The adaptive bound of bounded-range selections, to compare with the accountants: its answer and its curves.

    Arguments as for `bounded_range_epsilon`.
    """

    def epsilon(steps: int) -> Bound:
        with as_unsupported():
            return bounded_range.bounded_range_epsilon(eta, steps, delta, "adaptive", adjacency=adjacency)

    def profile(at: float) -> Bound:
        with as_unsupported():
            return bounded_range.bounded_range_delta(eta, count, at, "adaptive", adjacency=adjacency)

    return {"adaptive": lambda: [epsilon(count)]}, {"adaptive": Other(epsilon, profile)}


# Secrets


def compare_secret(
    release: SecretReleaseDpEvent,
    p: float,
    rounds: int = 1,
    *,
    methods: Sequence[str] = SECRET_METHODS,
    progress: Progress | None = None,
) -> Comparison:
    """r of `rounds` releases in which a secret may occur, by the product of their pairs and by two rougher methods.

    ``secret_protection`` encloses the exact r. ``concave_majorant`` composes the curve of one round with the rounds
    before it: certified, but wider. ``single_gaussian`` replaces the count by its mean: an estimate that is too low.

    Args:
        release: one round.
        p: the largest probability of a guess before, in (0, 1).
        rounds: releases with fresh noise and fresh occurrences, at least 1.
        methods: which of these three.
        progress: called as methods finish.
    """
    validate.open_probability(p=p)
    validate.integer(minimum=1, rounds=rounds)

    def answer(name: str) -> Callable[[], list[Bound]]:
        return lambda: [_protection(release, name, p, rounds)]

    answers = {name: answer(validate.one_of(SECRET_METHODS, method=name)) for name in methods}
    rows, unsupported = measure(answers, progress)
    about = events.to_json(dp_event.SelfComposedDpEvent(release, rounds))
    return Comparison(about, "r", Adjacency.SECRET, Unit("secret"), p, rows, unsupported)


def secret_panels(
    release: SecretReleaseDpEvent, rounds: int, comparison: Comparison, *, seconds: float = defaults.COMPARISON_SECONDS
) -> tuple[Panel, ...]:
    """r against p after all rounds and, if there are several, r at p against the number of rounds.

    Arguments as for `compare_secret`, whose result is `comparison`; `seconds` limits each method in each panel.
    """
    p = comparison.at
    guesses = [float(x) for x in np.geomspace(p / 100, min(100 * p, 0.9), _FIGURE_POINTS)]

    def by_p(name: str) -> Callable[[float], Bound]:
        if name == "secret_protection":
            return SecretProtectionAccountant().compose(release, rounds).protection
        return lambda p: _protection(release, name, p, rounds)

    def by_rounds(name: str) -> Callable[[float], Bound]:
        return lambda count: _protection(release, name, p, round(count))

    results = [traced("p", "r", comparison.rows, by_p, guesses, seconds, shown="r")]
    if rounds > 1:
        counts, known = counts_to(rounds), float(rounds)
        results.append(traced("rounds", "r", comparison.rows, by_rounds, counts, seconds, shown="r", known=known))
    return tuple(results)


def _protection(release: SecretReleaseDpEvent, name: str, p: float, rounds: int) -> Bound:
    if name == "secret_protection":
        return SecretProtectionAccountant().compose(release, rounds).protection(p)
    if name == "concave_majorant":
        return _majorant(release, p, rounds)
    with as_unsupported():
        # T rounds of Gaussians at one mean are one Gaussian with noise σ/√T.
        estimate = single_gaussian_estimate(release.weights, release.noise_multiplier / math.sqrt(rounds), p)
        return dataclasses.replace(estimate, method=name)


def _majorant(release: SecretReleaseDpEvent, p: float, rounds: int) -> Bound:
    """r of several rounds, with `compose_curves` round by round."""
    if rounds > _MAX_ROUNDS:
        raise Unsupported(f"concave_majorant composes round by round, at most {_MAX_ROUNDS} rounds, not {rounds}")
    first = SecretProtectionAccountant().compose(release).protection(p)
    r = first.value
    if rounds > 1:
        curve = _curve(release, math.floor(math.log10(p)))
        for _ in range(rounds - 1):
            r = compose_curves(r, curve) if r < 1 else 1.0
    return dataclasses.replace(first, value=r, method="concave_majorant", interval=None)


@functools.lru_cache(maxsize=16)
def _curve(release: SecretReleaseDpEvent, decade: int) -> Floats:
    """Points (p, r) of one round, from p = 10^decade on."""
    item = SecretProtectionAccountant().compose(release)
    guesses = np.concatenate([np.geomspace(10.0**decade, 0.5, _CURVE_POINTS), 1 - np.geomspace(0.5, 1e-6, 25)[1:]])
    return np.array([(guess, item.protection(float(guess)).value) for guess in guesses])


# Vectors of several layers


@dataclass(frozen=True, slots=True)
class Layers:
    """Means of the vectors of several layers, released together with Gaussian noise."""

    layers: int  # how many, at least 1
    clip: float  # the largest L2 norm of a record's vector in each layer, above 0
    records: int  # the public divisor of the means, at least 1
    adjacency: Adjacency  # add_remove, zero_out (a null record has the vector 0) or replace_one

    def __post_init__(self) -> None:
        validate.integer(minimum=1, layers=self.layers)
        gaussian.mean_sensitivity(self.clip, self.records, self.adjacency)


def compare_layers(
    released: Layers,
    *,
    delta: float,
    epsilon: float | None = None,
    sigma: float | None = None,
    methods: Sequence[str] = LAYER_METHODS,
    progress: Progress | None = None,
) -> Comparison:
    """The noise for an ε, or the ε of a noise, for several layers released together.

    ``classical`` and ``analytic`` give each layer an equal share of ε and of δ and add up; they differ in the noise of
    one layer. ``exact`` treats all layers as the single Gaussian release that they are.

    Args:
        released: what is released.
        delta: δ of all together, in (0, 1).
        epsilon: ε of all together, above 0, to get the noise multiplier of each layer.
        sigma: instead of `epsilon`: standard deviation of the noise on each coordinate of each mean, above 0, to get ε.
        methods: which of the three.
        progress: called as methods finish.

    Raises:
        ValueError: if an argument is invalid, or not exactly one of `epsilon` and `sigma` is given.
    """
    validate.open_probability(delta=delta)
    if (epsilon is None) == (sigma is None):
        raise ValueError("give exactly one of epsilon, to get the noise, and sigma, to get the ε")
    given = validate.positive(epsilon=epsilon) if epsilon is not None else validate.positive(sigma=sigma or 0.0)

    def answer(name: str) -> Callable[[], list[Bound]]:
        return lambda: [_bound_of_layers(released, name, delta, epsilon, sigma)]

    answers = {name: answer(validate.one_of(LAYER_METHODS, method=name)) for name in methods}
    rows, unsupported = measure(answers, progress)
    quantity = "epsilon" if epsilon is None else "noise_multiplier"
    about = {**dataclasses.asdict(released), ("sigma" if epsilon is None else "epsilon"): given, "delta": delta}
    return Comparison(about, quantity, released.adjacency, Unit(), delta, rows, unsupported)


def layer_panels(
    released: Layers,
    comparison: Comparison,
    *,
    epsilon: float | None = None,
    sigma: float | None = None,
    seconds: float = defaults.COMPARISON_SECONDS,
) -> tuple[Panel, ...]:
    """Noise multiplier or ε against the number of layers, from 1 to all of them.

    Arguments as for `compare_layers`, whose result is `comparison`; `seconds` limits each method.
    """

    def ask_of(name: str) -> Callable[[float], Bound]:
        def ask(count: float) -> Bound:
            part = dataclasses.replace(released, layers=round(count))
            return _bound_of_layers(part, name, comparison.at, epsilon, sigma)

        return ask

    quantity, counts, known = comparison.quantity, counts_to(released.layers), float(released.layers)
    shown = quantity.replace("_", " ")
    return (traced("layers", quantity, comparison.rows, ask_of, counts, seconds, shown=shown, known=known),)


def _bound_of_layers(released: Layers, name: str, delta: float, epsilon: float | None, sigma: float | None) -> Bound:
    with as_unsupported():
        if epsilon is not None:
            value, quantity = _noise_of_layers(released.layers, name, epsilon, delta), "noise_multiplier"
        else:
            value, quantity = _epsilon_of_layers(released, name, sigma or 0.0, delta), "epsilon"
    return Bound(Direction.UPPER, value, name, Rigor.CERTIFIED, released.adjacency, quantity=quantity, delta=delta)


def _noise_of_layers(layers: int, name: str, epsilon: float, delta: float) -> float:
    """The noise multiplier of each layer; shares of ε and δ are rounded down."""
    if name == "exact":
        return gaussian.joint_noise_multiplier(epsilon, delta, layers)
    shares = _share(epsilon, layers), _share(delta, layers)
    return (gaussian.classical_noise_multiplier if name == "classical" else gaussian.analytic_noise_multiplier)(*shares)


def _epsilon_of_layers(released: Layers, name: str, sigma: float, delta: float) -> float:
    """ε of all layers at δ, rounded up."""
    joint = released.layers if name == "exact" else 1
    mu = gaussian.joint_mu(
        [released.clip] * joint, [sigma] * joint, records=released.records, adjacency=released.adjacency
    )
    if name == "exact":
        return formulas.epsilon_from_gdp(mu, delta)
    share = _share(delta, released.layers)
    if name == "analytic":
        item = formulas.epsilon_from_gdp(mu, share)
    else:
        item = math.sqrt(2 * math.log(1.25 / share)) * mu * (1 + 2.0**-44)
        gaussian.classical_noise_multiplier(item, share)  # raises if the classical σ does not hold at this ε
    return math.nextafter(released.layers * item, math.inf)


def _share(total: float, layers: int) -> float:
    return math.nextafter(total / layers, 0.0) if layers > 1 else total

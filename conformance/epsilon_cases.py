"""Cases of ε: events, claims and states of accountants, each with an interval that contains the exact ε at δ.

Nothing here imports dpassay. An exact ε is the root of δ(ε) = δ in 50 digits, where δ(ε) = sup_E P(E) − e^ε Q(E) has a
closed form, or is the sum of all outcomes. The interval is that number, rounded down and up to binary64.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mpmath

mp = mpmath.mp.clone()
mp.dps = 50
Real = Any  # mpmath has no types
Profile = Callable[[Real], Real]
"""ε of any sign ↦ δ(ε)."""

EVENT, CLAIM, STATE = "event.json", "claim.yaml", "state.json"


@dataclass(frozen=True)
class Case:
    """An input, and what a program must say of it.

    Attributes:
        about: what is tested, one sentence.
        content: of the file.
        delta: δ, as the command line gives it.
        interval: what contains the exact ε; None if the input must be rejected.
        oracle: how the interval was computed.
        adjacency: the neighbouring relation.
        input: the file's name.
    """

    about: str
    content: str
    delta: str
    interval: tuple[float, float] | None = None
    oracle: str = ""
    adjacency: str = "add_remove"
    input: str = EVENT

    def described(self) -> dict[str, Any]:
        """The content of its ``case.json``, without what is expected."""
        body: dict[str, Any] = {
            "about": self.about,
            "adjacency": self.adjacency,
            "delta": self.delta,
            "input": self.input,
        }
        if self.interval is not None:
            body |= {"interval": [end if math.isfinite(end) else "inf" for end in self.interval], "oracle": self.oracle}
        return body


# Profiles.


def phi(x: Real) -> Real:
    return mp.ncdf(x)


def gaussian(mu: Real) -> Profile:
    """N(0, 1) and N(μ, 1): Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    return lambda epsilon: phi(mu / 2 - epsilon / mu) - mp.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


def laplace(a: Real) -> Profile:
    """Laplace noise of scale 1 on numbers that differ by a."""

    def delta(epsilon: Real) -> Real:
        if epsilon >= a:
            return mp.mpf(0)
        return 1 - mp.exp(epsilon) if epsilon <= -a else 1 - mp.exp((epsilon - a) / 2)

    return delta


def discrete(p: Sequence[Real], q: Sequence[Real]) -> Profile:
    """Two laws on finitely many outcomes: Σ max(0, p − e^ε q)."""
    return lambda epsilon: mp.fsum(max(mp.mpf(0), a - mp.exp(epsilon) * b) for a, b in zip(p, q, strict=True))


def sampled(rate: Real, inner: Profile) -> list[Profile]:
    """A mechanism on a Poisson sample, where its two laws may be exchanged: the record is removed, and it is added.

    With M = (1 − q)Q + qP: M(E) − e^ε Q(E) = q·(P(E) − e^α Q(E)) with e^α = (e^ε − 1 + q)/q, and
    Q(E) − e^ε M(E) = c·(Q(E) − (e^ε q/c) P(E)) with c = 1 − e^ε (1 − q).
    """

    def removed(epsilon: Real) -> Real:
        rest = mp.exp(epsilon) - 1 + rate
        return rate * inner(mp.log(rest / rate)) if rest > 0 else 1 - mp.exp(epsilon)

    def added(epsilon: Real) -> Real:
        c = 1 - mp.exp(epsilon) * (1 - rate)
        return c * inner(mp.log(mp.exp(epsilon) * rate / c)) if c > 0 else mp.mpf(0)

    return [removed, added]


def response(noise: Real, buckets: int) -> tuple[list[Real], list[Real]]:
    """Randomised response: a uniform bucket with probability `noise`, else one's own; two outcomes and the others."""
    other = noise / buckets
    own = 1 - noise + other
    rest = [(buckets - 2) * other] if buckets > 2 else []
    return [own, other, *rest], [other, own, *rest]


def product(*pairs: tuple[Sequence[Real], Sequence[Real]]) -> tuple[list[Real], list[Real]]:
    """The laws of several independent outcomes, each outcome listed."""
    return (
        [mp.fprod(point) for point in itertools.product(*(p for p, _ in pairs))],
        [mp.fprod(point) for point in itertools.product(*(q for _, q in pairs))],
    )


def epsilon_delta_pair(epsilon: Real, delta: Real) -> tuple[list[Real], list[Real]]:
    """The worst (ε, δ)-DP mechanism (Kairouz, Oh and Viswanath 2015)."""
    rest = 1 - delta
    likely, unlikely = rest * mp.exp(epsilon) / (1 + mp.exp(epsilon)), rest / (1 + mp.exp(epsilon))
    return [delta, likely, unlikely, mp.mpf(0)], [mp.mpf(0), unlikely, likely, delta]


def discrete_laplace(a: Real, sensitivity: int, reach: int = 2000) -> tuple[list[Real], list[Real]]:
    """Noise p(z) ∝ e^{−a|z|} on integers that differ by `sensitivity`; what is beyond `reach` is one outcome each."""
    unit = mp.tanh(a / 2)

    def law(centre: int) -> list[Real]:
        values = [unit * mp.exp(-a * abs(z - centre)) for z in range(-reach, reach + 1)]
        tails = [mp.exp(-a * (reach + 1 - centre)), mp.exp(-a * (reach + 1 + centre))]
        return [*values, *(tail / (1 + mp.exp(-a)) for tail in tails)]

    return law(0), law(sensitivity)


def discrete_gaussian(sigma: Real, reach: int = 400) -> tuple[list[Real], list[Real]]:
    """Noise p(z) ∝ e^{−z²/(2σ²)} on integers that differ by 1; the mass beyond `reach` is below 1e-50."""
    weights = [mp.exp(-(mp.mpf(z) ** 2) / (2 * sigma**2)) for z in range(-reach, reach + 1)]
    total = mp.fsum(weights)
    law = [weight / total for weight in weights]
    return [*law, mp.mpf(0)], [mp.mpf(0), *law]


def bounded_range(eta: Real) -> Profile:
    """The worst η-bounded-range mechanism: two outcomes whose log-ratios are t and t − η, for the worst t in [0, η].

    At ε it is t = (ε + η)/2 clipped into [0, η] (Dong, Durfee and Rogers 2020, theorem 1).
    """

    def delta(epsilon: Real) -> Real:
        t = min(max((epsilon + eta) / 2, mp.mpf(0)), eta)
        if t == 0:
            return max(mp.mpf(0), 1 - mp.exp(epsilon))
        q = (1 - mp.exp(t - eta)) / (mp.exp(t) - mp.exp(t - eta))
        return max(mp.mpf(0), mp.exp(t) * q - mp.exp(epsilon) * q) if t < eta or q else mp.mpf(0)

    return delta


# Intervals.


def exact(delta: str, *profiles: Profile) -> tuple[float, float]:
    """The least ε ≥ 0 at which no profile is above δ, enclosed by two neighbouring binary64 numbers, or equal ones."""
    target = mp.mpf(float(delta))

    def worst(epsilon: Real) -> Real:
        return max(profile(epsilon) for profile in profiles)

    if worst(mp.mpf(0)) <= target:
        return 0.0, 0.0
    lower, upper = mp.mpf(0), mp.mpf(1)
    while worst(upper) > target:
        if upper > 2**12:
            return math.inf, math.inf
        lower, upper = upper, 2 * upper
    while upper - lower > mp.mpf(10) ** -25 * upper:
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if worst(middle) > target else (lower, middle)
    return rounded(lower, upper)


def rounded(lower: Real, upper: Real) -> tuple[float, float]:
    """The least interval of binary64 numbers that contains this one."""
    below, above = float(lower), float(upper)
    if mp.mpf(below) > lower:
        below = math.nextafter(below, -math.inf)
    if mp.mpf(above) < upper:
        above = math.nextafter(above, math.inf)
    return below, above


def zcdp(rho: Real, delta: str) -> tuple[float, float]:
    """From the Gaussian mechanism of this ρ to the least ε of a Rényi order (Canonne, Kamath and Steinke 2020)."""
    target = mp.mpf(float(delta))

    def converted(order: Real) -> Real:
        return rho * order + mp.log(1 - 1 / order) - mp.log(target * order) / (order - 1)

    best = min(converted(1 + mp.mpf(10) ** (mp.mpf(k) / 400)) for k in range(-800, 1600))
    return exact(delta, gaussian(mp.sqrt(2 * rho)))[0], rounded(best, best)[1]


# Inputs.


def noise(multiplier: Any, kind: str = "Gaussian") -> dict[str, Any]:
    return {"type": f"{kind}DpEvent", "noise_multiplier": multiplier}


def repeated(event: Any, count: Any) -> dict[str, Any]:
    return {"type": "SelfComposedDpEvent", "event": event, "count": count}


def composed(*events: Any) -> dict[str, Any]:
    return {"type": "ComposedDpEvent", "events": list(events)}


def poisson(rate: Any, event: Any) -> dict[str, Any]:
    return {"type": "PoissonSampledDpEvent", "sampling_probability": rate, "event": event}


def randomised(noise_parameter: Any, buckets: Any) -> dict[str, Any]:
    return {"type": "RandomizedResponseDpEvent", "noise_parameter": noise_parameter, "num_buckets": buckets}


def approximate(epsilon: Any, delta: Any = 0) -> dict[str, Any]:
    return {"type": "EpsilonDeltaDpEvent", "epsilon": epsilon, "delta": delta}


def text(event: Any) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n"


CLOSED = "The root of δ(ε) = δ in closed form, in 50 digits."
LISTED = "The root of δ(ε) = δ, a sum over all outcomes, in 50 digits."


def declared(event: str, delta: str, epsilon: str = "9.0") -> str:
    """A claim of one event that ran elsewhere."""
    return (
        "name: declared-event\nmechanism: declared\nadjacency: add_remove\nparameters:\n  events:\n"
        f"    - {{name: release, event: {event}, conditions: [event]}}\n"
        f"guarantee: {{type: approx_dp, epsilon: {epsilon}, delta: {delta}}}\n"
    )


@dataclass(frozen=True)
class _Source:
    """An accepted input before its interval is computed."""

    about: str
    event: Any
    delta: str
    profiles: Sequence[Profile]
    oracle: str = CLOSED
    more: dict[str, Any] = field(default_factory=dict)

    def case(self) -> Case:
        content = self.event if isinstance(self.event, str) else text(self.event)
        return Case(self.about, content, self.delta, exact(self.delta, *self.profiles), self.oracle, **self.more)


def accepted_cases() -> dict[str, Case]:
    """Name → an input with the interval that contains its ε."""
    f = mp.mpf
    replace = {"adjacency": "replace_one"}
    tenth, third = f(0.1), f(0.3)
    sources = {
        "gaussian": _Source("Gaussian noise.", noise(1), "1e-5", [gaussian(f(1))]),
        "gaussian-little-noise": _Source("Little Gaussian noise.", noise(0.2), "1e-6", [gaussian(1 / f(0.2))]),
        "gaussian-much-noise": _Source("Much Gaussian noise.", noise(50), "1e-6", [gaussian(1 / f(50))]),
        "gaussian-large-delta": _Source("So large a δ that ε is 0.", noise(10), "0.25", [gaussian(f(1) / 10)]),
        "gaussian-tiny-delta": _Source(
            "A δ far below what a float can resolve beside 1.", noise(2), "1e-60", [gaussian(f(1) / 2)]
        ),
        "gaussian-replace-one": _Source(
            "An exchange moves a sum twice as far.", noise(2), "1e-5", [gaussian(f(1))], more=replace
        ),
        "gaussian-repeated": _Source(
            "1000 Gaussian mechanisms are one with less noise.",
            repeated(noise(40), 1000),
            "1e-6",
            [gaussian(mp.sqrt(f(1000)) / 40)],
        ),
        "gaussian-composed": _Source(
            "Gaussian mechanisms with different noise.",
            composed(noise(3), noise(4), repeated(noise(12), 2)),
            "1e-6",
            [gaussian(mp.sqrt(f(1) / 9 + f(1) / 16 + f(2) / 144))],
        ),
        "gaussian-million": _Source(
            "A million compositions.", repeated(noise(1000), 1000000), "1e-6", [gaussian(f(1))]
        ),
        "laplace": _Source("Laplace noise.", noise(2, "Laplace"), "1e-3", [laplace(f(1) / 2)]),
        "laplace-pure": _Source("Laplace noise, at δ = 0.", noise(2, "Laplace"), "0", [laplace(f(1) / 2)]),
        "discrete-laplace": _Source(
            "Discrete Laplace noise.",
            {"type": "DiscreteLaplaceDpEvent", "noise_parameter": 0.3, "sensitivity": 2},
            "1e-3",
            [discrete(*discrete_laplace(third, 2))],
            LISTED,
        ),
        "discrete-gaussian": _Source(
            "Discrete Gaussian noise on a number.",
            {"type": "DiscreteGaussianDpEvent", "sigma": 3, "sensitivity": 1, "dimension": 1},
            "1e-6",
            [discrete(*discrete_gaussian(f(3)))],
            LISTED,
        ),
        "response": _Source(
            "Randomised response with 4 answers.",
            randomised(0.5, 4),
            "1e-3",
            [discrete(*response(f(0.5), 4))],
            more=replace,
        ),
        "response-pure": _Source(
            "Randomised response, at δ = 0.", randomised(0.5, 4), "0", [discrete(*response(f(0.5), 4))], more=replace
        ),
        "response-repeated": _Source(
            "Four randomised responses.",
            repeated(randomised(0.5, 3), 4),
            "1e-3",
            [discrete(*product(*[response(f(0.5), 3)] * 4))],
            LISTED,
            replace,
        ),
        "response-composed": _Source(
            "Randomised responses of three kinds.",
            composed(randomised(0.5, 2), randomised(0.25, 3), randomised(0.75, 5)),
            "1e-4",
            [discrete(*product(response(f(0.5), 2), response(f(0.25), 3), response(f(0.75), 5)))],
            LISTED,
            replace,
        ),
        "pure": _Source("Any ε-DP mechanism.", approximate(0.7), "1e-6", [discrete(*epsilon_delta_pair(f(0.7), f(0)))]),
        "pure-composed": _Source(
            "Pure ε of 0.1 and 0.3 add up at δ = 0.",
            composed(approximate(0.1), approximate(0.3)),
            "0",
            [discrete(*product(epsilon_delta_pair(tenth, f(0)), epsilon_delta_pair(third, f(0))))],
            LISTED,
        ),
        "pure-repeated": _Source(
            "Six ε-DP mechanisms: the optimal composition.",
            repeated(approximate(0.3), 6),
            "1e-2",
            [discrete(*product(*[tuple(law[1:3] for law in epsilon_delta_pair(third, f(0)))] * 6))],  # type: ignore[arg-type]
            LISTED,
        ),
        "approximate-repeated": _Source(
            "Three (ε, δ)-DP mechanisms: the optimal composition.",
            repeated(approximate(0.25, 1e-6), 3),
            "1e-5",
            [discrete(*product(*[epsilon_delta_pair(f(0.25), f(1e-6))] * 3))],
            LISTED,
        ),
        "approximate-too-small": _Source(
            "A δ below that of the mechanism: no finite ε.", approximate(0.25, 1e-3), "1e-4", [lambda _: f(1e-3)]
        ),
        "selection": _Source(
            "A bounded-range selection.",
            {"type": "BoundedRangeSelectionDpEvent", "eta": 1, "rounding": 0},
            "1e-3",
            [bounded_range(f(1))],
        ),
        "sampled-gaussian": _Source(
            "Gaussian noise on a Poisson sample.", poisson(0.25, noise(1)), "1e-5", sampled(f(0.25), gaussian(f(1)))
        ),
        "sampled-gaussian-rarely": _Source(
            "A record is rarely in the sample.", poisson(0.001, noise(0.5)), "1e-6", sampled(f(0.001), gaussian(f(2)))
        ),
        "sampled-gaussian-always": _Source("A sample of everybody.", poisson(1, noise(1)), "1e-5", [gaussian(f(1))]),
        "sampled-gaussian-never": _Source("A sample of nobody.", poisson(0, noise(1)), "1e-5", [lambda _: f(0)]),
        "sampled-laplace": _Source(
            "Laplace noise on a Poisson sample.",
            poisson(0.25, noise(1, "Laplace")),
            "1e-3",
            sampled(f(0.25), laplace(f(1))),
        ),
        "parallel": _Source(
            "Disjoint parts cost as much as the worst of them.",
            {
                "type": "ParallelDpEvent",
                "events": [noise(2), noise(1), noise(4)],
                "partition_is_public": True,
            },
            "1e-5",
            [gaussian(f(1))],
        ),
        "parallel-replace-one": _Source(
            "An exchange within a public part.",
            {"type": "ParallelDpEvent", "events": [noise(2), noise(4)], "partition_is_public": True},
            "1e-5",
            [gaussian(f(1))],
            more=replace,
        ),
        "nothing-else": _Source(
            "A composition with a part that releases nothing.",
            composed({"type": "NoOpDpEvent"}, noise(1)),
            "1e-5",
            [gaussian(f(1))],
        ),
        "no-protection": _Source(
            "A release without protection.", {"type": "NonPrivateDpEvent"}, "1e-5", [lambda _: f(1)]
        ),
        "no-noise": _Source("No noise at all.", noise(0), "1e-5", [lambda _: f(1)]),
        "claim-gaussian": _Source(
            "A claim of a Gaussian mechanism that ran elsewhere.",
            declared("{class_name: GaussianDpEvent, noise_multiplier: 2.0}", "1.0e-5"),
            "1.0e-5",
            [gaussian(f(1) / 2)],
            more={"input": CLAIM},
        ),
        "claim-laplace": _Source(
            "A claim of Laplace noise that ran elsewhere.",
            declared("{class_name: LaplaceDpEvent, noise_multiplier: 4.0}", "1.0e-3"),
            "1.0e-3",
            [laplace(f(1) / 4)],
            more={"input": CLAIM},
        ),
        "state-full-batches": _Source(
            "The state of Opacus' accountant after 100 steps with all records.",
            text({"history": [[20, 1, 100]], "mechanism": "rdp"}),
            "1e-5",
            [gaussian(f(10) / 20)],
            more={"input": STATE, "adjacency": "zero_out"},
        ),
    }
    cases = {name: source.case() for name, source in sources.items()}
    cases["zcdp"] = Case(
        "Any ρ-zCDP mechanism: the interval reaches from the Gaussian mechanism to the best conversion.",
        text({"type": "ZCDpEvent", "rho": 0.125, "xi": 0}),
        "1e-6",
        zcdp(f(0.125), "1e-6"),
        "From the Gaussian mechanism, in closed form, to the least ε that a Rényi order gives; both in 50 digits.",
    )
    return cases


def rejected_cases() -> dict[str, Case]:
    """Name → an input that must be rejected."""

    def of(about: str, event: Any, delta: str = "1e-5", **more: Any) -> Case:
        return Case(about, event if isinstance(event, str) else text(event), delta, **more)

    good = text(noise(1))
    history = [[1.0, 0.01, 100]]
    return {
        "delta-2": of("δ is 2.", good, "2"),
        "delta-negative": of("δ is negative.", good, "-0.5"),
        "delta-nan": of("δ is NaN.", good, "nan"),
        "delta-infinite": of("δ is infinite.", good, "inf"),
        "noise-negative": of("Negative noise.", noise(-1)),
        "noise-nan": of("Noise that is NaN.", '{"type":"GaussianDpEvent","noise_multiplier":NaN}\n'),
        "noise-infinite": of(
            "Noise that is Infinity, which is no JSON.", '{"type":"GaussianDpEvent","noise_multiplier":Infinity}\n'
        ),
        "noise-text": of("Noise that is a text.", noise("1")),
        "noise-null": of("Noise that is null.", noise(None)),
        "noise-true": of("Noise that is true.", noise(True)),
        "noise-list": of("Noise that is a list.", noise([1])),
        "noise-missing": of("No noise is stated.", {"type": "GaussianDpEvent"}),
        "laplace-negative": of("Negative Laplace noise.", noise(-2, "Laplace")),
        "rate-above-1": of("A sampling probability above 1.", poisson(1.5, noise(1))),
        "rate-negative": of("A negative sampling probability.", poisson(-0.1, noise(1))),
        "rate-nan": of(
            "A sampling probability that is NaN.",
            '{"type":"PoissonSampledDpEvent","sampling_probability":NaN,"event":' + good.strip() + "}\n",
        ),
        "rate-text": of("A sampling probability that is a text.", poisson("0.1", noise(1))),
        "sampled-nothing": of(
            "A sample without a mechanism.", {"type": "PoissonSampledDpEvent", "sampling_probability": 0.1}
        ),
        "sampled-number": of("A sample whose mechanism is a number.", poisson(0.1, 1)),
        "count-negative": of("A negative number of repetitions.", repeated(noise(1), -1)),
        "count-fraction": of("Half a repetition.", repeated(noise(1), 1.5)),
        "count-text": of("A number of repetitions that is a text.", repeated(noise(1), "10")),
        "composed-object": of(
            "A composition whose parts are no list.", {"type": "ComposedDpEvent", "events": {"a": noise(1)}}
        ),
        "composed-null": of("A composition with a part that is null.", composed(noise(1), None)),
        "parallel-nothing": of(
            "A parallel composition of no parts.",
            {"type": "ParallelDpEvent", "events": [], "partition_is_public": False},
        ),
        "epsilon-negative": of("A negative ε.", approximate(-1)),
        "epsilon-delta-above-1": of("A mechanism whose δ is above 1.", approximate(1, 1.5)),
        "zcdp-negative": of("A negative ρ.", {"type": "ZCDpEvent", "rho": -0.1, "xi": 0}),
        "response-noise-above-1": of(
            "A probability of a random answer above 1.", randomised(1.5, 2), adjacency="replace_one"
        ),
        "response-no-answers": of("No answers to choose from.", randomised(0.5, 0), adjacency="replace_one"),
        "selection-negative": of(
            "A negative range.", {"type": "BoundedRangeSelectionDpEvent", "eta": -1, "rounding": 0}
        ),
        "weights-sum": of(
            "Probabilities that do not sum to 1.",
            {"type": "SecretReleaseDpEvent", "noise_multiplier": 1, "weights": [0.5, 0.2], "remainder": 0},
        ),
        "type-unknown": of("An unknown mechanism.", {"type": "MagicDpEvent"}),
        "type-missing": of("No type.", {"noise_multiplier": 1}),
        "type-number": of("A type that is a number.", {"type": 1, "noise_multiplier": 1}),
        "field-unknown": of("A field that Gaussian noise does not have.", {**noise(1), "delta": 0}),
        "field-twice": of("A field twice.", '{"type":"GaussianDpEvent","noise_multiplier":100,"noise_multiplier":1}\n'),
        "json-list": of("A list.", [noise(1)]),
        "json-cut": of("The file was cut.", good[:-6]),
        "json-empty": of("An empty file.", ""),
        "json-two": of("Two events.", good + good),
        "json-comment": of("A comment.", "// noise\n" + good),
        "adjacency-unknown": of("A neighbouring relation that there is not.", good, adjacency="swap"),
        "claim-unknown-key": of(
            "A key that no claim has.",
            declared("{class_name: GaussianDpEvent, noise_multiplier: 2.0}", "1.0e-5") + "epsilon: 1\n",
            input=CLAIM,
        ),
        "claim-negative": of(
            "A claim of negative noise.",
            declared("{class_name: GaussianDpEvent, noise_multiplier: -2.0}", "1.0e-5"),
            input=CLAIM,
        ),
        "claim-nan": of(
            "A claim whose noise is NaN.",
            declared("{class_name: GaussianDpEvent, noise_multiplier: .nan}", "1.0e-5"),
            input=CLAIM,
        ),
        "claim-delta": of(
            "A claim at a δ above 1.",
            declared("{class_name: GaussianDpEvent, noise_multiplier: 2.0}", "2.0"),
            input=CLAIM,
        ),
        "claim-no-mechanism": of(
            "A claim without its mechanism.",
            declared("{class_name: GaussianDpEvent, noise_multiplier: 2.0}", "1.0e-5").replace(
                "mechanism: declared\n", ""
            ),
            input=CLAIM,
        ),
        "claim-key-twice": of(
            "A key twice.",
            declared("{class_name: GaussianDpEvent, noise_multiplier: 2.0}", "1.0e-5") + "adjacency: replace_one\n",
            input=CLAIM,
        ),
        "state-rate": of(
            "A state with a sample rate above 1.",
            {"history": [[1, 1.5, 10]], "mechanism": "rdp"},
            input=STATE,
            adjacency="zero_out",
        ),
        "state-noise": of(
            "A state with negative noise.",
            {"history": [[-1, 0.1, 10]], "mechanism": "rdp"},
            input=STATE,
            adjacency="zero_out",
        ),
        "state-steps": of(
            "A state with half a step.",
            {"history": [[1, 0.1, 0.5]], "mechanism": "rdp"},
            input=STATE,
            adjacency="zero_out",
        ),
        "state-mechanism": of(
            "A state of an unknown accountant.",
            {"history": history, "mechanism": "magic"},
            input=STATE,
            adjacency="zero_out",
        ),
        "state-history": of(
            "A state whose history is a number.", {"history": 5, "mechanism": "rdp"}, input=STATE, adjacency="zero_out"
        ),
    }

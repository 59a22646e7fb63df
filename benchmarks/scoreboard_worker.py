"""Asks one accountant questions, each in a process of its own, so that what hangs can be ended.

    PYTHON benchmarks/scoreboard_worker.py NAME < QUESTIONS

Only the standard library is needed until the library that is asked is imported, so NAME may be installed for another
Python than the scoreboard runs on. A question is a line of JSON, as is its answer, which begins with `MARK`.
"""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, NoReturn

for _name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON", "NUMBA"):
    os.environ.setdefault(f"{_name}_NUM_THREADS", "1")

Event = Mapping[str, Any]
"""``{"type": class of an event, field: value, …}``, as `dpassay.accounting.events.to_json` writes it."""


MARK = "answer: "


class NotOffered(Exception):
    """The library has no function for the question; the text says what is missing."""


@dataclass(frozen=True)
class Question:
    """An event, a δ and a neighbouring relation.

    Attributes:
        event: what ran. Of a matrix mechanism, the Gaussian that its sensitivity gives.
        delta: in (0, 1).
        adjacency: add_remove, replace_one or zero_out.
        group: so many records that come or go together.
        strategy: of a matrix mechanism: ``coefficients`` of a Toeplitz matrix, ``noise_multiplier``, ``steps``,
            ``participations``, ``separation``; of cyclic samples also ``sampling_probability``.
    """

    event: Event
    delta: float
    adjacency: str = "add_remove"
    group: int = 1
    strategy: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Question:
        return cls(**data)


@dataclass(frozen=True)
class Answer:
    """What an accountant says.

    Attributes:
        epsilon: its upper bound on ε, or its value where it has no bound.
        lower: its lower bound, if it has one.
        direction: ``remove`` or ``add`` if the answer is for one of them only.
    """

    epsilon: float
    lower: float | None = None
    direction: str = ""


def parts(event: Event, count: int = 1) -> Iterator[tuple[Event, int]]:
    """A composition as what is composed, with counts."""
    if event["type"] == "SelfComposedDpEvent":
        yield from parts(event["event"], count * event["count"])
    elif event["type"] == "ComposedDpEvent":
        for part in event["events"]:
            yield from parts(part, count)
    else:
        yield event, count


def only(event: Event, kind: str) -> tuple[Event, int]:
    """The event of a kind that is composed with itself, and how often."""
    items = list(parts(event))
    if len(items) != 1 or items[0][0]["type"] != kind:
        raise NotOffered(f"not a composition of one {kind}")
    return items[0]


def sampled_gaussian(event: Event) -> tuple[float, float]:
    """Noise multiplier and sampling probability."""
    if event["type"] == "GaussianDpEvent":
        return event["noise_multiplier"], 1.0
    if event["type"] == "PoissonSampledDpEvent" and event["event"]["type"] == "GaussianDpEvent":
        return event["event"]["noise_multiplier"], event["sampling_probability"]
    raise NotOffered(f"it accounts for sampled Gaussians, not for {name_of(event)}")


def sampled_gaussians(asked: Question) -> list[tuple[float, float, int]]:
    """Noise multipliers, sampling probabilities and counts."""
    _records(asked)
    return [(*sampled_gaussian(part), count) for part, count in parts(asked.event)]


def name_of(event: Event) -> str:
    """The class of an event, and of what it holds."""
    inner = event.get("event")
    name = str(event["type"]).removesuffix("DpEvent")
    return f"{name}({name_of(inner)})" if isinstance(inner, Mapping) else name


def _records(asked: Question, *adjacencies: str) -> None:
    """Refuses what most libraries have no word for."""
    if asked.strategy:
        raise NotOffered("it computes no sensitivities of strategy matrices")
    if asked.group > 1:
        raise NotOffered("it has no groups of records")
    if asked.adjacency not in (adjacencies or ("add_remove",)):
        raise NotOffered(f"it has no {asked.adjacency}")


# ---- dpassay --------------------------------------------------------------------------------------------------------


def dpassay(asked: Question) -> Callable[[], Answer]:
    def ask() -> Answer:
        bound = _lattice(asked, None).epsilon(asked.delta)
        return Answer(bound.value, None if bound.interval is None else bound.interval.lower)

    return ask


def _lattice(asked: Question, width: float | None) -> Any:
    from dpassay.accounting.accountants.base import Unsupported
    from dpassay.accounting.events import from_json
    from dpassay.accounting.lattice.accountant import Lattice
    from dpassay.accounting.lattice.pairs import WIDTH

    unit = f"group({asked.group})" if asked.group > 1 else None
    try:
        return Lattice(asked.adjacency, unit, WIDTH if width is None else width).compose(from_json(asked.event))
    except Unsupported as error:
        raise NotOffered(str(error)) from None


def enclosures(asked: Question, width: float) -> dict[str, list[float | None]]:
    """The narrowest certified intervals that there are: lower and upper end, of both directions and of each.

    An end is missing where no neighbours are known to attain the answer.
    """
    lattice = _lattice(asked, width)
    both = lattice.epsilon(asked.delta)
    results: dict[str, list[float | None]] = {
        "both": [None if both.interval is None else both.interval.lower, both.value]
    }
    if asked.adjacency == "add_remove" and lattice.pair.tight:
        for direction in ("remove", "add"):
            interval = lattice.pair.epsilon(asked.delta, direction=direction, width=width)
            results[direction] = [interval.lower, interval.upper]
    return results


# ---- dp_accounting, and what builds on it ---------------------------------------------------------------------------


def _native(event: Event, noise_scale: float = 1.0) -> Any:
    """The event of dp_accounting, its noise multiplied."""
    import dp_accounting
    from dp_accounting import dp_event

    kind = event["type"]
    if kind == "TruncatedPoissonSampledDpEvent":
        return dp_event.TruncatedSubsampledGaussianDpEvent(
            event["source_dataset_size"],
            event["sampling_probability"],
            event["max_batch_size"],
            event["event"]["noise_multiplier"] * noise_scale,
        )
    cls = getattr(dp_event, kind, None)
    if cls is None:
        raise NotOffered(f"dp_accounting {_version(dp_accounting)} has no {kind}")
    values = {key: _native_value(value, noise_scale) for key, value in event.items() if key != "type"}
    if "noise_multiplier" in values:
        values["noise_multiplier"] *= noise_scale
    return cls(**values)


def _native_value(value: Any, noise_scale: float) -> Any:
    if isinstance(value, Mapping):
        return _native(value, noise_scale)
    if isinstance(value, list):
        return [_native_value(item, noise_scale) for item in value]
    return math.inf if value == "inf" else value


def _version(module: Any) -> str:
    from importlib import metadata

    return metadata.version(module.__name__.replace("_", "-"))


def _relation(adjacency: str) -> Any:
    from dp_accounting import NeighboringRelation as Relation

    known = {
        "add_remove": Relation.ADD_OR_REMOVE_ONE,
        "replace_one": Relation.REPLACE_ONE,
        "zero_out": Relation.REPLACE_SPECIAL,
    }
    return known[adjacency]


def dp_accounting_pld(asked: Question) -> Callable[[], Answer]:
    _records(asked, "add_remove", "replace_one", "zero_out")
    from dp_accounting.pld import PLDAccountant

    event = _native(asked.event)
    return lambda: Answer(PLDAccountant(_relation(asked.adjacency)).compose(event).get_epsilon(asked.delta))


def dp_accounting_rdp(asked: Question) -> Callable[[], Answer]:
    """Under replace_one it takes noise over the distance of the two sums, which is twice a record's contribution."""
    _records(asked, "add_remove", "replace_one", "zero_out")
    from dp_accounting.rdp import RdpAccountant

    event = _native(asked.event, 0.5 if asked.adjacency == "replace_one" else 1.0)

    def ask() -> Answer:
        accountant = RdpAccountant(neighboring_relation=_relation(asked.adjacency))
        return Answer(accountant.compose(event).get_epsilon(asked.delta))

    return ask


def riskcal(asked: Question) -> Callable[[], Answer]:
    """The accountant of its DP-SGD, to which steps are added one by one, as it is in training."""
    rounds = sampled_gaussians(asked)
    from riskcal.accountants import CTDAccountant

    def ask() -> Answer:
        accountant = CTDAccountant()
        accountant.history = rounds
        return Answer(accountant.get_epsilon(delta=asked.delta))

    return ask


def jax_privacy(asked: Question) -> Callable[[], Answer]:
    """Its accountants of training runs at their default, PLDs of dp_accounting; strategies by its sensitivities."""
    if asked.strategy:
        return _jax_strategy(asked)
    if asked.adjacency != "add_remove" and (asked.adjacency, asked.group) != ("replace_one", 1):
        raise NotOffered(f"it has no {asked.adjacency} for this")
    items = list(parts(asked.event))
    if len(items) != 1:
        raise NotOffered("a training run has one kind of step")
    event, count = items[0]
    noise, given = _jax_parameters(event, asked)
    if asked.group > 1:
        given["examples_per_user"] = asked.group
    from jax_privacy import accounting

    if event["type"] == "SampledWithoutReplacementDpEvent":
        given["sampling_method"] = accounting.SamplingMethod.FIXED_BATCH_SIZE
    cls = accounting.DpsgdTrainingAccountant if asked.group == 1 else accounting.DpsgdTrainingUserLevelAccountant
    parameters = accounting.DpParams(noise_multipliers=noise, delta=asked.delta, **given)
    return lambda: Answer(cls(accounting.PldAccountantConfig()).compute_epsilon(count, parameters))


def _jax_parameters(event: Event, asked: Question) -> tuple[float, dict[str, Any]]:
    kind, given = event["type"], {}
    if kind == "SampledWithoutReplacementDpEvent" and event["event"]["type"] == "GaussianDpEvent":
        given = {"num_samples": event["source_dataset_size"], "batch_size": event["sample_size"]}
        return event["event"]["noise_multiplier"], given
    if asked.adjacency != "add_remove":
        raise NotOffered(f"it has no {asked.adjacency} for this")
    if kind == "TruncatedPoissonSampledDpEvent":
        size = event["source_dataset_size"]
        batch = Fraction(event["sampling_probability"]).limit_denominator(10**9) * size
        if batch.denominator != 1:
            raise NotOffered("it takes whole batch sizes")
        given = {"num_samples": size, "batch_size": int(batch), "truncated_batch_size": event["max_batch_size"]}
        return event["event"]["noise_multiplier"], given
    if kind != "PoissonSampledDpEvent":
        raise NotOffered(f"it accounts for training runs, not for {name_of(event)}")
    noise, rate = sampled_gaussian(event)
    ratio = Fraction(rate).limit_denominator(10**9)
    return noise, {"num_samples": ratio.denominator, "batch_size": ratio.numerator}


def _jax_strategy(asked: Question) -> Callable[[], Answer]:
    import jax

    jax.config.update("jax_enable_x64", True)
    import dp_accounting
    import jax.numpy as jnp
    from jax_privacy.experimental import accounting
    from jax_privacy.matrix_factorization import toeplitz

    given, coefficients = asked.strategy, jnp.array(asked.strategy["coefficients"])

    def ask() -> Answer:
        if "sampling_probability" in given:
            norm = float(toeplitz.sensitivity_squared(coefficients, n=given["steps"])) ** 0.5
            event = accounting.amplified_bandmf_event(
                given["noise_multiplier"] / norm,
                given["steps"],
                num_bands=len(given["coefficients"]),
                sampling_prob=given["sampling_probability"],
            )
        else:
            squared = toeplitz.minsep_sensitivity_squared(
                coefficients, given["separation"], given["participations"], n=given["steps"]
            )
            event = dp_accounting.GaussianDpEvent(given["noise_multiplier"] / float(squared) ** 0.5)
        return Answer(dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(asked.delta))

    return ask


# ---- others ---------------------------------------------------------------------------------------------------------


def prv_accountant(asked: Question) -> Callable[[], Answer]:
    """At the errors of its documentation: .1 of ε, 1e-10 of δ, or a thousandth of δ if that is less."""
    _records(asked)
    items = list(parts(asked.event))
    for part, _ in items:
        if part["type"] != "LaplaceDpEvent":
            sampled_gaussian(part)
    from prv_accountant import PRVAccountant, privacy_random_variables

    def variable(event: Event) -> Any:
        if event["type"] == "LaplaceDpEvent":
            return privacy_random_variables.LaplaceMechanism(1 / event["noise_multiplier"])
        noise, rate = sampled_gaussian(event)
        if rate == 1:
            return privacy_random_variables.GaussianMechanism(noise)
        return privacy_random_variables.PoissonSubsampledGaussianMechanism(rate, noise)

    counts = [count for _, count in items]

    def ask() -> Answer:
        variables = [variable(part) for part, _ in items]
        accountant = PRVAccountant(variables, 0.1, min(1e-10, asked.delta / 1000), counts)
        low, _, high = accountant.compute_epsilon(asked.delta, counts)
        return Answer(float(high), float(low), "remove")

    return ask


def opacus_prv(asked: Question) -> Callable[[], Answer]:
    return _opacus(asked, "prv")


def opacus_rdp(asked: Question) -> Callable[[], Answer]:
    return _opacus(asked, "rdp")


def _opacus(asked: Question, mechanism: str) -> Callable[[], Answer]:
    rounds = sampled_gaussians(asked)
    from opacus.accountants import create_accountant

    def ask() -> Answer:
        accountant = create_accountant(mechanism)
        accountant.history = rounds
        return Answer(accountant.get_epsilon(delta=asked.delta), direction="remove" if mechanism == "prv" else "")

    return ask


def autodp(asked: Question) -> Callable[[], Answer]:
    """Rényi divergences, which is what its generic composition composes."""
    _records(asked)
    items = list(parts(asked.event))
    for part, _ in items:
        _autodp_kind(part)
    from autodp import mechanism_zoo, transformer_zoo

    def mechanism(event: Event) -> Any:
        kind = event["type"]
        if kind == "PoissonSampledDpEvent":
            sampled = transformer_zoo.AmplificationBySampling(PoissonSampling=True)
            gaussian = event["event"]["type"] == "GaussianDpEvent"
            return sampled(mechanism(event["event"]), event["sampling_probability"], improved_bound_flag=gaussian)
        if kind == "ZCDpEvent":
            return mechanism_zoo.zCDP_Mechanism(event["rho"], event["xi"])
        if kind == "BoundedRangeSelectionDpEvent":
            return mechanism_zoo.ExponentialMechanism(event["eta"])
        if kind == "DiscreteGaussianDpEvent":
            return mechanism_zoo.DiscreteGaussianMechanism(event["sigma"] / event["sensitivity"])
        cls = mechanism_zoo.GaussianMechanism if kind == "GaussianDpEvent" else mechanism_zoo.LaplaceMechanism
        return cls(event["noise_multiplier"])

    def ask() -> Answer:
        if len(items) == 1 and items[0][1] == 1:
            return Answer(float(mechanism(items[0][0]).get_approxDP(asked.delta)))
        whole = transformer_zoo.Composition()([mechanism(part) for part, _ in items], [count for _, count in items])
        return Answer(float(whole.get_approxDP(asked.delta)))

    return ask


def _autodp_kind(event: Event) -> None:
    noise = ("GaussianDpEvent", "LaplaceDpEvent")
    known = (*noise, "ZCDpEvent", "BoundedRangeSelectionDpEvent", "DiscreteGaussianDpEvent")
    kind = event["type"]
    sampled = kind == "PoissonSampledDpEvent" and event["event"]["type"] in noise
    if not sampled and kind not in known:
        raise NotOffered(f"it has no {name_of(event)}")


def opake(asked: Question) -> Callable[[], Answer]:
    """Its factories of DP-SGD; sensitivities of strategies by the functions on which its DP-FTRL is built."""
    if asked.strategy:
        return _opake_strategy(asked)
    _records(asked)
    steps = [(part, count) for part, count in parts(asked.event)]
    for part, _ in steps:
        if part["type"] not in ("TruncatedPoissonSampledDpEvent", "RandomAllocationDpEvent", "EpsilonDeltaDpEvent"):
            _workers(part) or sampled_gaussian(part)
    from opake import accounting
    from opake.api.accounting import dpsgd

    def step(event: Event) -> Any:
        kind = event["type"]
        if kind == "EpsilonDeltaDpEvent":
            return accounting.eps_delta(event["epsilon"], event["delta"])
        if kind == "RandomAllocationDpEvent":
            gaussian = dpsgd.gaussian(sampled_gaussian(event["event"])[0])
            return dpsgd.k_out_of_t(gaussian, k=event["num_selected"], t=event["num_steps"], allocation="total")
        if kind == "TruncatedPoissonSampledDpEvent":
            return dpsgd.poisson(
                dpsgd.gaussian(event["event"]["noise_multiplier"]),
                event["sampling_probability"],
                truncated_batch_size=event["max_batch_size"],
                dataset_size=event["source_dataset_size"],
            )
        if workers := _workers(event):
            return dpsgd.parallel_poisson(dpsgd.gaussian(event["standard_deviation"]), workers[1], workers[0])
        noise, rate = sampled_gaussian(event)
        gaussian = dpsgd.gaussian(noise)
        return gaussian if rate == 1 else dpsgd.poisson(gaussian, rate)

    def ask() -> Answer:
        whole = None
        for event, count in steps:
            each = step(event) if count == 1 else step(event) * count
            whole = each if whole is None else whole | each
        return Answer(float(whole.epsilon_at(asked.delta)))  # type: ignore[union-attr]

    return ask


def _workers(event: Event) -> tuple[int, float] | None:
    """How many workers draw how large a share each, if a mixture of Gaussians is their sum."""
    if event["type"] != "MixtureOfGaussiansDpEvent":
        return None
    weights, most = event["sampling_probs"], len(event["sampling_probs"]) - 1
    rate = 1 - weights[0] ** (1 / most)
    rate = round(rate, 12)
    law = [math.comb(most, k) * rate**k * (1 - rate) ** (most - k) for k in range(most + 1)]
    whole = list(event["sensitivities"]) == list(range(most + 1))
    return (most, rate) if whole and max(abs(a - b) for a, b in zip(law, weights, strict=True)) < 1e-12 else None


def _opake_strategy(asked: Question) -> Callable[[], Answer]:
    from opake.api.accounting.core import opake_accounting as functions
    from opake.api.accounting.core.discretization import get_discretization

    given = asked.strategy

    def ask() -> Answer:
        sampled = "sampling_probability" in given
        squared = functions.toeplitz_minsep_sensitivity_squared(
            given["coefficients"], given["steps"], given.get("separation", 1), 1 if sampled else given["participations"]
        )
        config = get_discretization().to_native()
        law = functions.mf_gaussian_pld(given["noise_multiplier"], squared**0.5, config)
        if sampled:
            rounds = -(-given["steps"] // len(given["coefficients"]))
            law = functions.poisson_pld(law, given["sampling_probability"]).self_compose(rounds)
        return Answer(float(law.epsilon_at(asked.delta)))

    return ask


def pld_accounting(asked: Question) -> Callable[[], Answer]:
    """Gaussians by `gaussian_allocation_epsilon_range`, Laplace noise by `general_allocation_epsilon`."""
    _records(asked)
    event, epochs = only(asked.event, "RandomAllocationDpEvent")
    shape = {"num_steps": event["num_steps"], "num_selected": event["num_selected"], "num_epochs": epochs}
    noise, kind = event["event"]["noise_multiplier"], event["event"]["type"]
    import PLD_accounting as library

    def ask() -> Answer:
        if kind == "GaussianDpEvent":
            high, low = library.gaussian_allocation_epsilon_range(delta=asked.delta, sigma=noise, **shape)
            return Answer(float(high), float(low))
        law = library.laplace_distribution(scale=noise)
        config = library.AllocationSchemeConfig()
        laws = {"remove_realization": law, "add_realization": law, "config": config}
        return Answer(float(library.general_allocation_epsilon(delta=asked.delta, **shape, **laws)))

    return ask


def random_allocation(asked: Question) -> Callable[[], Answer]:
    """Its combination of all methods that bound from above without sampling."""
    _records(asked)
    event, epochs = only(asked.event, "RandomAllocationDpEvent")
    noise, rate = sampled_gaussian(event["event"])
    if rate != 1:
        raise NotOffered("it has no sampled mechanisms in random steps")
    from random_allocation.comparisons.definitions import Direction, PrivacyParams, SchemeConfig
    from random_allocation.random_allocation_scheme.combined import allocation_epsilon_combined

    parameters = PrivacyParams(
        sigma=noise,
        num_steps=event["num_steps"],
        num_selected=event["num_selected"],
        num_epochs=epochs,
        delta=asked.delta,
        epsilon=None,
    )
    config = SchemeConfig(allocation_direct_alpha_orders=list(range(2, 61)))
    return lambda: Answer(float(allocation_epsilon_combined(parameters, config, Direction.BOTH)))


# ---- the process ----------------------------------------------------------------------------------------------------

_GAUSSIAN = {"type": "GaussianDpEvent", "noise_multiplier": 3.0}
_SGD = {
    "type": "SelfComposedDpEvent",
    "event": {"type": "PoissonSampledDpEvent", "sampling_probability": 0.02, "event": _GAUSSIAN},
    "count": 30,
}
_EPOCH = {"type": "RandomAllocationDpEvent", "event": _GAUSSIAN, "num_selected": 1, "num_steps": 8}


@dataclass(frozen=True)
class Peer:
    """An accountant of the scoreboard.

    Attributes:
        ask: prepares a question; what it returns is timed.
        package: the distribution it comes in.
        shown: how the scoreboard names it.
        asked: how it is asked, for the page.
        first: an event that it answers before the clock starts, so that imports are not counted.
        forks: whether it may be imported before the process of a question is forked; no if it starts threads.
    """

    ask: Callable[[Question], Callable[[], Answer]]
    package: str
    shown: str
    asked: str
    first: Event = field(default_factory=lambda: _SGD)
    forks: bool = True


PEERS: dict[str, Peer] = {
    "dpassay": Peer(dpassay, "dpassay", "dpassay", "`account(event, …)`, at its default width of 1e-3"),
    "dp_accounting_pld": Peer(
        dp_accounting_pld, "dp-accounting", "dp_accounting, PLD", "`PLDAccountant(relation).compose(event)`"
    ),
    "dp_accounting_rdp": Peer(
        dp_accounting_rdp,
        "dp-accounting",
        "dp_accounting, RDP",
        "`RdpAccountant(neighboring_relation=relation).compose(event)`; under replace_one at half the noise, as it "
        "takes noise over the distance of the two sums",
    ),
    "prv_accountant": Peer(
        prv_accountant,
        "prv-accountant",
        "prv_accountant",
        "`PRVAccountant(…, eps_error=0.1, delta_error=1e-10)`, as its README does, or δ/1000 if that is less; its "
        "upper bound, for removal",
    ),
    "opacus_prv": Peer(
        opacus_prv, "opacus", "Opacus, PRV", '`create_accountant("prv").get_epsilon(delta)`, for removal'
    ),
    "opacus_rdp": Peer(opacus_rdp, "opacus", "Opacus, RDP", '`create_accountant("rdp").get_epsilon(delta)`'),
    "autodp": Peer(
        autodp,
        "autodp",
        "autodp",
        "mechanisms of `mechanism_zoo`, `AmplificationBySampling` and `Composition`, by Rényi divergences",
    ),
    "riskcal": Peer(
        riskcal, "riskcal", "riskcal", "`CTDAccountant.get_epsilon`, on PLDs of dp_accounting with connected dots"
    ),
    "jax_privacy": Peer(
        jax_privacy,
        "jax-privacy",
        "jax_privacy",
        "`DpsgdTrainingAccountant` or `DpsgdTrainingUserLevelAccountant` with `PldAccountantConfig()`; sensitivities "
        "of `matrix_factorization.toeplitz`, `amplified_bandmf_event`",
        forks=False,
    ),
    "opake": Peer(
        opake,
        "opake-accounting",
        "opake",
        "`opake.api.accounting.dpsgd`; strategies by `toeplitz_minsep_sensitivity_squared` and `mf_gaussian_pld`",
        forks=False,
    ),
    "pld_accounting": Peer(
        pld_accounting,
        "PLD_accounting",
        "PLD_accounting",
        "`gaussian_allocation_epsilon_range`, whose lower end is compared, too; Laplace noise by "
        "`general_allocation_epsilon`",
        _EPOCH,
    ),
    "random_allocation": Peer(
        random_allocation, "random-allocation", "random_allocation", "`allocation_epsilon_combined`", _EPOCH
    ),
}


def prepare(name: str) -> None:
    """Imports a library and has it answer a first question, where processes may be forked afterwards."""
    if name == "enclosures" or PEERS[name].forks:
        try:
            PEERS["dpassay" if name == "enclosures" else name].ask(Question(_first(name), 1e-5))()
        except Exception as error:  # the questions will tell
            print(f"{name}: {error}", file=sys.stderr)


def _first(name: str) -> Event:
    return _SGD if name == "enclosures" else PEERS[name].first


def answer(name: str, asked: Question) -> dict[str, Any]:
    """What a peer says, as the scoreboard stores it: an answer with its time, or one of `missing` and `refused`."""
    peer = PEERS[name]
    try:
        ask = peer.ask(asked)
        if not peer.forks:
            peer.ask(Question(peer.first, 1e-5))()
            _extend_limit()
        wall, cpu = time.perf_counter(), time.process_time()
        given = ask()
        seconds = min(time.perf_counter() - wall, time.process_time() - cpu)
    except NotOffered as error:
        return {"missing": str(error)}
    except ImportError as error:
        return {"not_installed": str(error)}
    except MemoryError:
        return {"memory": True}
    except Exception as error:
        return {"refused": type(error).__name__, "message": " ".join(str(error).split())[:160]}
    result: dict[str, Any] = {"epsilon": _number(given.epsilon), "seconds": round(seconds, 5)}
    if given.lower is not None:
        result["lower"] = _number(given.lower)
    return result | ({"direction": given.direction} if given.direction else {})


def _extend_limit() -> None:
    """Gives back the processor time that imports took."""
    limit, most = resource.getrlimit(resource.RLIMIT_CPU)
    if limit != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_CPU, (limit + math.ceil(time.process_time()), most))


def _number(value: float) -> float | str:
    """JSON has no infinite numbers."""
    value = float(value)
    return value if math.isfinite(value) else str(value)


def in_a_process(
    work: Callable[[], Mapping[str, Any]], seconds: float, idle: float, memory_gib: float
) -> dict[str, Any]:
    """What `work` returns in a process that is forked for it, or how that ended. That a machine is busy ends nothing.

    Args:
        work: what is done; its result is plain JSON.
        seconds: of processor time, after which it is ended.
        idle: seconds on the clock without any work, after which it is ended.
        memory_gib: address space that it may have beyond what this process has now.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        _work(work, write, seconds, memory_gib)
    os.close(write)
    data, worked, since = b"", -1.0, time.monotonic()
    while True:
        if select.select([read], [], [], min(idle, 1.0))[0]:
            chunk = os.read(read, 1 << 16)
            if not chunk:
                break
            data += chunk
        runs, used = _state(child)
        if runs or used != worked:
            worked, since = used, time.monotonic()
        elif time.monotonic() - since > idle:
            os.kill(child, signal.SIGKILL)
            break
    os.close(read)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status)
        if ended in (signal.SIGXCPU, signal.SIGKILL):
            return {"hung": seconds}
        return {"refused": signal.Signals(ended).name, "message": "the process ended"}
    result: dict[str, Any] = json.loads(data) if data else {"refused": "exit", "message": f"with status {status}"}
    return result


def _state(process: int) -> tuple[bool, float]:
    """Whether a process wants to run, and the processor time that it has used."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        words = file.read().rpartition(")")[2].split()
    return words[0] == "R", int(words[11]) + int(words[12])


def _work(work: Callable[[], Mapping[str, Any]], write: int, seconds: float, memory_gib: float) -> NoReturn:
    status = 1
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        size, whole = now + int(memory_gib * 2**30), math.ceil(seconds)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CPU, (whole, resource.RLIM_INFINITY))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.write(write, json.dumps(work()).encode())
        status = 0
    finally:
        os._exit(status)


def about(name: str) -> dict[str, str]:
    """The version of the package and of Python; empty if the package is not installed."""
    from importlib import metadata

    try:
        version = metadata.version(PEERS[name].package)
    except metadata.PackageNotFoundError:
        return {}
    return {"version": version, "python": platform.python_version()}


def main(name: str) -> None:
    """Says which version is asked, then answers the questions of standard input, a line each."""
    warnings.simplefilter("ignore")
    print(MARK + json.dumps({} if name == "enclosures" else about(name)), flush=True)
    prepared = False
    for line in sys.stdin:
        if not prepared:
            prepare(name)
            prepared = True
        data = json.loads(line)
        asked, limits = Question.from_json(data["question"]), data["limits"]
        work = partial(enclosures, asked, data["width"]) if name == "enclosures" else partial(answer, name, asked)
        print("\n" + MARK + json.dumps(in_a_process(work, *limits)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

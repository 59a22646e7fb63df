"""Assays as the job writes them, built in code: one for each way a report can come out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpassay.accounting import Adjacency, ApproxDP, Bound, ExPostDP, Guarantee, PureDP, Unit
from dpassay.accounting.bounds import Direction, Interval, Rigor, Risk
from dpassay.audits.implications import describe
from dpassay.audits.result import AuditResult, Rate
from dpassay.audits.verdict import decide
from dpassay.base.number_format import format_lower, format_upper
from dpassay.reports.assay import (
    Assay,
    BatchCost,
    Difference,
    Digests,
    LedgerSummary,
    Lengths,
    Output,
    PastAudit,
    PastVerdict,
    TokenCost,
)

HEAD = "9f2c41d7e0b85a6c3d1f7a90b4e8c6525c7be1f04a2d9836e5f01b7c8a3d4e6f"
SLOTS, TOKENS, CLIP, TEMPERATURE = 65, 512, 10.0, 1.2


def claim(name: str, guarantee: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    return {
        "name": name,
        "data": {"source": "builtin", "name": "keys"},
        "unit": "record",
        "adjacency": "add_remove",
        "mechanism": "private_inference",
        "variant": "sound",
        "parameters": {
            "aggregate": "median",
            "clip": CLIP,
            "temperature": TEMPERATURE,
            "batch_size": 63,
            "records_per_context": 1,
            "tokens": TOKENS,
            **parameters,
        },
        "model": "builtin",
        "public": {"records": 4096, "labels": ["key"]},
        "guarantee": guarantee,
        "audits": ["leave_one_out", "reconstruction"],
    }


def row(direction: str, value: float, method: str, rigor: str, **more: Any) -> Bound:
    return Bound(Direction(direction), value, method, Rigor(rigor), Adjacency.ADD_REMOVE, **more)


def decided(guarantee: Guarantee, bounds: list[Bound]) -> dict[str, Any]:
    """What is said of a claim, in the words of the library."""
    result = decide(guarantee, adjacency="add_remove", unit=Unit(), bounds=bounds)
    return {
        "guarantee": describe(guarantee),
        "verdict": result.name,
        "verdict_is_private": result.is_private,
        "sentence": result.sentence,
        "reasons": list(result.reasons),
        "missing": result.missing,
        "bounds": bounds,
    }


def risks(delta: float) -> list[Risk]:
    """What a bound means for who is attacked, as the job writes it."""
    upper, lower, certified = Direction.UPPER, Direction.LOWER, Rigor.CERTIFIED
    assumed = SAMPLED_LAW, ROWS_INDEPENDENT
    return [
        Risk("advantage", 0.6633, upper, certified, Interval(0.6621, 0.6633), assumptions=assumed),
        Risk("true_positive_rate", 0.34144, upper, certified, Interval(0.341, 0.34144), 0.01, assumed),
        Risk("true_positive_rate", 0.12044, upper, certified, None, 0.001, assumed),
        Risk("bayes_error", 0.16835, lower, certified, Interval(0.16835, 0.169), 0.5, assumed),
        Risk("mu", 1.93042, upper, certified, None, delta, assumed),
        Risk("regret", 0.00971, upper, certified, assumptions=assumed),
    ]


def rate(name: str, hits: int, trials: int) -> Rate:
    return Rate(name, hits, trials, confidence=0.95)


def reconstruction(source: int, holdout: int, bounds: list[Bound]) -> AuditResult:
    return AuditResult(
        name="reconstruction",
        game="Each of 4096 keys is in the data by an independent fair coin; the attacker reads the released text.",
        attack="Every well-formed key of the released text is a guess.",
        statistics=("one_run(guesses = disclosed keys)", "hypergeometric tail"),
        conclusion="No key of the data is disclosed more often than a key that was never in it."
        if source < 100
        else "Keys of the data are disclosed far more often than keys that were never in it.",
        trials=4096,
        bounds=tuple(bounds),
        rates=(rate("source keys disclosed", source, 2031), rate("holdout keys disclosed", holdout, 2065)),
        controls=(
            rate("positive control: requested keys reproduced", 193, 200),
            rate("positive control: source keys disclosed", 1894, 2031),
            rate("positive control: holdout keys disclosed", 43, 2065),
            rate("negative control: keys in no list printed", 41, 2000),
        ),
        controls_passed=True,
        difference=Interval(-0.0093, 0.0081) if source < 100 else Interval(0.88, 0.92),
        control_difference=Interval(0.89, 0.93),
        p_value=0.6172 if source < 100 else 3.2e-311,
        multiplicity=("guesses: every disclosed key", "no prefix", "digits given: 0"),
    )


def leave_one_out(bounds: list[Bound], conclusion: str) -> AuditResult:
    return AuditResult(
        name="leave_one_out",
        game="The attacker knows every record but one, every logit and every released token.",
        attack="Exact log-ratio of the released tokens with and without each record.",
        statistics=("largest absolute log-ratio over all records",),
        conclusion=conclusion,
        trials=4096,
        bounds=tuple(bounds),
        multiplicity=("all 4096 records, one score each", "re-run of the pipeline for the 8 largest"),
    )


def costs(seed: int, slots: int = SLOTS) -> tuple[list[BatchCost], list[TokenCost]]:
    """Costs with the shapes of real ones: a long right tail over batches, falling with the position."""
    rng = np.random.default_rng(seed)
    exact = rng.lognormal(-1.2, 0.62, slots)
    batches = [
        BatchCost(
            slot=slot,
            label="key",
            size=int(rng.binomial(4096, 1 / slots)),
            documents=int(rng.integers(18, 31)),
            tokens=TOKENS,
            epsilon=float(e),
            epsilon_published=float(e * rng.uniform(1.9, 4.5)),
            leave_one_out=float(e * rng.uniform(0.3, 0.6)),
        )
        for slot, e in enumerate(exact)
    ]
    decay = 0.02 * np.exp(-np.arange(26) / 5) + 2e-4
    tokens = [
        TokenCost(
            position=i,
            count=slots * 20 - 13 * i,
            mean=float(m),
            largest=float(m * rng.uniform(6, 14)),
            mean_published=float(m * 2.6),
        )
        for i, m in enumerate(decay)
    ]
    return batches, tokens


def composition(event: dict[str, Any], slots: int = SLOTS) -> dict[str, Any]:
    tokens = {"type": "SelfComposedDpEvent", "event": event, "count": TOKENS}
    return {"type": "ParallelDpEvent", "events": [tokens] * slots, "partition_is_public": False}


MEDIAN: dict[str, Any] = {"type": "ExPostSelectionDpEvent", "eta": 4 * CLIP / TEMPERATURE, "rounding": 7.5e-12}
MEAN: dict[str, Any] = {
    "type": "BoundedRangeSelectionDpEvent",
    "eta": 2 * CLIP / (64 * TEMPERATURE),
    "rounding": 7.5e-12,
}

COMMON: dict[str, Any] = {
    "created": "2026-11-21T09:12:44+00:00",
    "not_protected": [
        "The number of units (4096) and the set of labels are public by assumption.",
        "What several records say together: a phrase that most records of a batch share is meant to come out.",
    ],
    "limitations": [
        "Whatever was tuned on private metrics is not accounted.",
        "A batch of size 0 or 1 costs much more than the others, and one thin batch can dominate the run.",
    ],
    "threat_model": ["The attacker knows every record but one, the model, the key of the slots and the released text."],
    "side_channels": ["Running times and floating-point exceptions are not protected."],
    "implementation": {
        "source of noise": "the operating system’s entropy, through secrets",
        "model fingerprint (SHA-256)": "5b1c7a20",
        "input file": "sha256:1f0e33aa",
    },
    "versions": {"dpassay": "0.1.0", "python": "3.11.9", "torch": "2.6.0", "dp-accounting": "0.6.0"},
    "digests": Digests(documents="d0" * 32, claim="c1" * 32),
    "output": Output(
        documents=1734,
        empty=3,
        characters=Lengths(least=18, median=23.0, most=61, mean=24.25),
        complete=1734,
        ends="All ended.",
    ),
    "unfinished": 59,
}


def verdict(created: str, name: str, audits: list[AuditResult], **more: Any) -> PastVerdict:
    """A verdict as the ledger of a run holds it."""
    made = [
        PastAudit(name=item.name, game=item.game, attack=item.attack, statistics=item.statistics, bounds=item.bounds)
        for item in audits
    ]
    body: dict[str, Any] = {
        "claim": "c1" * 32,
        "guarantee": {"type": "ex_post", "epsilon": 3.0},
        "claimed": "ex-post differential privacy with ε = 3",
        "asked": [item.name for item in audits],
        "confidence": 0.975 if audits else None,
        "contradictions": [],
        "documents": "d0" * 32,
        "versions": {"dpassay": "0.1.0"},
    }
    return PastVerdict(created=created, verdict=name, audits=made, **(body | more))  # type: ignore[arg-type]


ROWS_INDEPENDENT = "Rows of a batch do not influence each other in floating point (tested to 1e-4 of a logit)."
SAMPLED_LAW = "The sampler draws from the stated integer weights with unbiased entropy."


def ex_post() -> Assay:
    """A data-dependent claim that is met."""
    batches, tokens = costs(7)
    exact, loss = max(b.epsilon for b in batches), max(b.leave_one_out for b in batches)
    what: dict[str, Any] = {"quantity": "ex_post_epsilon", "private": True}
    shown = row("lower", loss, "leave_one_out", "certified", ceiling=exact, **what)
    one_run = row("lower", 0.0, "one_run", "finite_sample", confidence=0.95, ceiling=2.8715, delta=0.0, private=True)
    before = dataclasses.replace(one_run, value=0.0625, confidence=0.975)
    published = max(b.epsilon_published for b in batches)
    conclusion = (
        f"The largest loss of a record within its batch is {format_lower(loss)}; loss ≤ ex-post ε* ≤ published cost in "
        f"every one of {SLOTS} batches (largest ε* {format_upper(exact)}, published {format_upper(published)})."
    )
    audits = [leave_one_out([shown], conclusion), reconstruction(41, 43, [one_run])]
    history = [
        verdict("2026-11-20T17:03:01+00:00", "SUPPORTED", [reconstruction(40, 43, [before])]),
        verdict(COMMON["created"], "SUPPORTED", audits),
    ]
    return Assay(
        name="keys-median",
        claim=claim("keys-median", {"type": "ex_post", "epsilon": 3.0}),
        **decided(
            ExPostDP(3.0),
            [
                row("upper", exact, "ex_post", "certified", assumptions=(SAMPLED_LAW, ROWS_INDEPENDENT), **what),
                row("upper", TOKENS * MEDIAN["eta"], "basic", "certified", assumptions=(SAMPLED_LAW, ROWS_INDEPENDENT)),
                row("upper", 71162.4, "zcdp", "certified", delta=1.06e-4, assumptions=(SAMPLED_LAW, ROWS_INDEPENDENT)),
                shown,
                one_run,
                before,
            ],
        ),
        audits=audits,
        history=history,
        batches=batches,
        tokens=tokens,
        spent={"tokens": exact, "slot counts": 0.1},
        differences=[
            Difference(
                statement="The published per-token cost is about twice the exact one for odd batches",
                published=published,
                recomputed=exact,
                why="It bounds both directions with the whole reach of the median; a neighbour moves it halfway.",
            )
        ],
        ledger=LedgerSummary(
            head=HEAD, events=SLOTS * TOKENS, entries=66_563, composition=composition(MEDIAN), planned=True
        ),
        **COMMON,
    )


def approx_dp(epsilon: float = 10.0) -> Assay:
    """A worst-case claim that is met, or one that is not."""
    delta = 4096**-1.1
    upper = 9.871034
    rows = [
        row("upper", upper, "zcdp", "certified", delta=delta, assumptions=(SAMPLED_LAW, ROWS_INDEPENDENT)),
        row(
            "upper",
            upper * 0.973,
            "rdp",
            "certified",
            delta=delta,
            interval=Interval(upper * 0.9, upper * 0.973),
            assumptions=(SAMPLED_LAW, ROWS_INDEPENDENT),
        ),
        row("upper", upper * 0.94, "pld", "estimate", delta=delta, assumptions=(SAMPLED_LAW, "Error not bounded.")),
        row("upper", TOKENS * MEAN["eta"], "basic", "certified", assumptions=(SAMPLED_LAW, ROWS_INDEPENDENT)),
    ]
    one_run = row(
        "lower", 0.214, "one_run", "finite_sample", confidence=0.95, ceiling=2.8715, delta=delta, private=True
    )
    loss = row("lower", 1.83, "leave_one_out", "estimate", delta=delta, private=True)
    return Assay(
        name="keys-mean",
        claim=claim(
            "keys-mean", {"type": "approx_dp", "epsilon": epsilon, "delta": "n^-1.1"}, aggregate="mean", denominator=64
        ),
        **decided(ApproxDP(epsilon, delta), [*rows, one_run, loss]),
        audits=[
            leave_one_out([loss], "The largest loss is 1.83; at δ > 0 it is an estimate."),
            reconstruction(44, 43, [one_run]),
        ],
        risks=risks(delta),
        spent={"tokens": upper},
        ledger=LedgerSummary(
            head=HEAD, events=SLOTS * TOKENS, entries=66_563, composition=composition(MEAN), planned=True
        ),
        **COMMON,
    )


def refuted() -> Assay:
    """The unprotected control: no finite bound above, large bounds below."""
    shown = row("lower", 13.8155, "leave_one_out", "certified", private=True)
    one_run = row("lower", 5.103, "one_run", "finite_sample", confidence=0.95, ceiling=6.44, delta=0.0, private=True)
    return Assay(
        name="keys-unprotected",
        claim=claim("keys-unprotected", {"type": "pure_dp", "epsilon": 3.0}, aggregate="none"),
        **decided(PureDP(3.0), [row("upper", math.inf, "basic", "certified"), shown, one_run]),
        audits=[
            leave_one_out([shown], "One record changes the likelihood of the output by a factor of e^13.8155."),
            reconstruction(1894, 43, [one_run]),
        ],
        ledger=LedgerSummary(head=HEAD, events=1, entries=3, composition={"type": "NonPrivateDpEvent"}, planned=True),
        **COMMON,
    )


def unproven() -> Assay:
    """The right mechanism with an ε that it does not meet."""
    return approx_dp(epsilon=5.0).model_copy(update={"name": "keys-mean-understated"})


BUILDERS: dict[str, Callable[[], Assay]] = {f.__name__: f for f in (ex_post, approx_dp, refuted, unproven)}


@pytest.fixture(params=BUILDERS)
def assay(request: pytest.FixtureRequest) -> Assay:
    """Each of the four assays in turn."""
    return BUILDERS[request.param]()


@pytest.fixture
def assays() -> dict[str, Assay]:
    """All four assays by name."""
    return {name: build() for name, build in BUILDERS.items()}

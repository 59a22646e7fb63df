"""Checks of the statements of "EPSVec: Efficient and Private Synthetic Data Generation via Dataset Vectors".

A dataset vector is a mean of n differences of hidden states, each clipped to length C, with Gaussian noise. If one
record is replaced, the mean moves by at most 2C/n. Records with the vector (C, 0, …, 0), one of which is replaced by
one with (−C, 0, …, 0), attain that. So the release is N(μ, 1) against N(0, 1) for these data, μ = 2C/(nσ), and its
curve is the exact cost.

If the sums are over m of the n records, drawn without replacement in secret, the replaced record is in the sample with
probability q = m/n: (1 − q)N(0, 1) + q N(μ, 1) against N(0, 1). With t = 1 + (e^ε − 1)/q, the largest P(E) − e^ε Q(E)
is q times the largest P_μ(E) − t·P_0(E), so δ(ε) = q δ_μ(log t). For these data that is an equality, which makes it a
lower bound for the mechanism, and it is an upper bound for all data (Balle, Barthe and Gaboardi 2018, Theorem 9).

The noise is the least that the accounting in question allows, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from dpassay.accounting import gaussian
from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice import gaussian_curve
from dpassay.base.number_format import format_interval, format_lower, format_number, format_upper
from dpassay.claims.published.statement import CheckResult
from dpassay.mechanisms.dataset_vectors.release import RADIUS, clipped

_ROOM = 1e-13
"""More than the relative error of a few operations and functions on floats."""

REPLACED = "All records of a label have the vector (C, 0, …, 0); one is replaced by a record with (−C, 0, …, 0)."


def _epsilon(mu: float, delta: float, drawn: int, records: int) -> Interval:
    """The least ε at δ if one record of REPLACED is replaced, for μ with a relative error of up to `_ROOM`."""
    rate = drawn / records
    curve = gaussian_curve.epsilon(mu * (1 - _ROOM), delta / rate * (1 + _ROOM))
    lower = math.log1p(rate * math.expm1(curve.lower)) * (1 - _ROOM)
    upper = gaussian.sampled_epsilon(mu * (1 + _ROOM), delta, sample_size=drawn, records=records)
    return Interval(min(lower, upper), upper)


def _with_examples(interval: Interval, examples: float) -> str:
    """What an ε of the vectors becomes with that of the examples, as the paper adds them."""
    total = format_lower(interval.lower + examples)
    return f"With {format_number(examples)} for the examples, by basic composition, {total}."


def _delta(mu: float, epsilon: float) -> Interval:
    """δ at ε of a Gaussian whose mean moves by μ standard deviations, the rounding of μ counted."""
    return Interval(
        gaussian_curve.delta(mu * (1 - _ROOM), epsilon).lower, gaussian_curve.delta(mu * (1 + _ROOM), epsilon).upper
    )


# Theorem 4.1


def classical_noise(epsilon: float, delta: float) -> CheckResult:
    """Theorem 4.1 for one layer: δ at ε with σ = Δ√(2 ln(1.25/δ))/ε."""
    mu = _classical_mu(epsilon, delta)
    result = _delta(mu, epsilon)
    return CheckResult.of(
        f"{REPLACED} The mean moves by Δ = 2C/n.",
        f"With σ = Δ√(2 ln(1.25/δ))/ε that is μ = Δ/σ = {format_number(mu)}.",
        f"δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) is {format_number(result.lower)} at ε = {format_number(epsilon)}.",
        f"The stated noise is enough up to ε = {format_lower(gaussian.classical_limit(delta))} and for none above.",
        within=result,
    )


def layer_by_layer(epsilon: float, delta: float, layers: int, drawn: int = 1, records: int = 1) -> CheckResult:
    """Theorem 4.1 for L layers, on a sample within Theorem 4.2: ε at δ of all layers' vectors, released together.

    The budget of the sample is (ε₀, δ/q) with ε₀ = log(1 + (e^ε − 1)/q), and each layer has the L-th part of both. Its
    noise is the classical one. One record moves all layers at once, by 2C_ℓ/m each; scaled by σ_ℓ these are one vector
    of length √L·μ_ℓ.

    Args:
        epsilon, delta: the budget.
        layers: L.
        drawn, records: of the sample, 1 of 1 if there is none.
    """
    rate = drawn / records
    inner = math.log1p(math.expm1(epsilon) / rate)
    each = _classical_mu(inner / layers, delta / rate / layers)
    result = _epsilon(math.sqrt(layers) * each, delta, drawn, records)
    needed = gaussian.sampled_mu(epsilon, delta, sample_size=drawn, records=records) / math.sqrt(layers)
    return CheckResult.of(
        f"{drawn} of {records} records are drawn: vectors of a sample may have ε₀ = {format_number(inner)} at "
        f"δ₀ = {format_number(delta / rate)}.",
        f"Layers: {layers}. Each has this part of ε₀ and δ₀, so σ/Δ = {format_number(1 / each)} by the classical "
        "formula.",
        f"{REPLACED} All layers together are one Gaussian release with μ = √{layers}·Δ/σ = "
        f"{format_number(math.sqrt(layers) * each)}.",
        f"Its ε at δ = {format_number(delta)} is in {format_interval(result.lower, result.upper)}.",
        f"The noise is {format_number(needed / each)} times what this budget needs.",
        within=result,
    )


def _classical_mu(epsilon: float, delta: float) -> float:
    """Δ/σ for σ = Δ√(2 ln(1.25/δ))/ε."""
    return epsilon / math.sqrt(2 * math.log(1.25 / delta))


# Theorem 4.2 and what the released code makes of it


def sampled_vectors(epsilon: float, delta: float, drawn: int, records: int) -> CheckResult:
    """Theorem 4.2 for the vectors: ε at δ = q·δ_vec with the least noise that is (ε_vec, δ_vec)-DP on the sample."""
    mu = gaussian.sampled_mu(epsilon, delta, sample_size=drawn, records=records) * (1 - 4 * _ROOM)
    result = _epsilon(mu, delta, drawn, records)
    return CheckResult.of(
        f"{drawn} of {records} records are drawn in secret: q = {format_number(drawn / records)}.",
        f"By the theorem ε = {format_number(epsilon)} at δ = {format_number(delta)} allows "
        f"ε_vec = {format_number(math.log1p(math.expm1(epsilon) * records / drawn))} at "
        f"δ_vec = {format_number(delta * records / drawn)}, which μ = {format_number(mu)} has.",
        f"{REPLACED} The sample holds it with probability q, so δ(ε) = q·δ_μ(log(1 + (e^ε − 1)/q)) exactly.",
        f"ε at δ = {format_number(delta)} is in {format_interval(result.lower, result.upper)}: what the theorem "
        "states is attained.",
        within=result,
    )


def released_code(
    epsilon: float, delta: float, examples: float, drawn: int, records: int, sensitivity: float, sample: str
) -> CheckResult:
    """ε at δ of the vectors with noise for another sensitivity than 2C/n, or with a sample that is known.

    A seed that anybody can read decides who is in the sample. Then P and Q are N(μ, 1) and N(0, 1) for a record that is
    in it, and the cost is that of the Gaussian itself.

    Args:
        epsilon, delta: for which the noise is made, with a secret sample.
        examples: ε of the examples, which the paper adds.
        drawn, records: m and n of the label.
        sensitivity: for which the noise is made, in units of C/n.
        sample: ``secret``, or ``known``.
    """
    enough = gaussian.sampled_mu(epsilon, delta, sample_size=drawn, records=records)
    mu, clips = enough * 2 / sensitivity * (1 - 4 * _ROOM), "" if sensitivity == 1 else f"{format_number(sensitivity)}·"
    result = _epsilon(mu, delta, drawn, records) if sample == "secret" else _epsilon(mu, delta, 1, 1)
    return CheckResult.of(
        f"With a secret sample of {drawn} of {records} records, ε = {format_number(epsilon)} at "
        f"δ = {format_number(delta)} allows μ = {format_number(enough)} for a record in the sample.",
        f"The noise is made for a sensitivity of {clips}C/n. {REPLACED} The mean moves by 2C/n: "
        f"μ = {format_number(mu)}.",
        f"The replaced record is in the sample with probability {format_number(drawn / records)}, in secret."
        if sample == "secret"
        else "Sample and noise come from one seed that is in the code. The replaced record is one of those that it "
        "draws, so nothing amplifies.",
        f"ε at δ = {format_number(delta)} is at least {format_lower(result.lower)}.",
        _with_examples(result, examples),
        within=result,
    )


def first_label_for_all(
    epsilon: float, delta: float, examples: float, drawn: int, records: Sequence[int]
) -> CheckResult:
    """ε at δ of each label's vectors, if all have the noise of the first label's share q = m/n_y.

    Args:
        epsilon, delta, examples: as in `released_code`.
        drawn: m, of each label.
        records: n_y of each label.
    """
    mu = gaussian.sampled_mu(epsilon, delta, sample_size=drawn, records=records[0]) * (1 - 4 * _ROOM)
    results = [_epsilon(mu, delta, drawn, size) for size in records]
    worst = max(range(len(records)), key=lambda label: results[label].lower)
    shown = (format_number(label.lower) for label in results)
    added = (format_number(label.lower + examples) for label in results)
    return CheckResult.of(
        f"{drawn} records are drawn of each label, of {', '.join(map(str, records))}. With the share of the first "
        f"label, ε = {format_number(epsilon)} at δ = {format_number(delta)} allows μ = {format_number(mu)}.",
        f"{REPLACED} If it is of the label with {records[worst]} records, it is in the sample with probability "
        f"{format_number(drawn / records[worst])}, not {format_number(drawn / records[0])}.",
        f"ε at δ = {format_number(delta)} is {', '.join(shown)} for a record of each label.",
        f"With {format_number(examples)} for the examples, by basic composition, {', '.join(added)}.",
        lower=results[worst].lower,
        upper=max(label.upper for label in results),
    )


def noise_at_each_start(
    epsilon: float, delta: float, examples: float, drawn: int, records: int, runs: int
) -> CheckResult:
    """ε at δ of the vectors that several runs release, each with new noise, from one sample.

    k releases N(μ, 1) are one of μ√k, the mean of them being sufficient.

    Args:
        epsilon, delta, examples, drawn, records: as in `released_code`.
        runs: k.
    """
    mu = gaussian.sampled_mu(epsilon, delta, sample_size=drawn, records=records) * (1 - 4 * _ROOM)
    result = _epsilon(mu * math.sqrt(runs), delta, drawn, records)
    return CheckResult.of(
        f"One release from {drawn} of {records} records with ε = {format_number(epsilon)} at "
        f"δ = {format_number(delta)} has μ = {format_number(mu)} for a record in the sample.",
        f"Clean vectors are kept, and noise is added at each start: {runs} runs release {runs} noisy copies of the "
        f"same sums, together one release with μ√{runs} = {format_number(mu * math.sqrt(runs))}.",
        f"{REPLACED} ε at δ = {format_number(delta)} is at least {format_lower(result.lower)}.",
        _with_examples(result, examples),
        within=result,
    )


# Sensitivities


def histogram(epsilon: float, delta: float, sensitivity: float) -> CheckResult:
    """δ at ε of noisy votes under replace_one, with noise for a given L2 sensitivity."""
    enough = float(gaussian.largest_mus(epsilon, delta))
    mu = enough * math.sqrt(2) / sensitivity
    result = _delta(mu, epsilon)
    return CheckResult.of(
        "One record votes for the first candidate; it is replaced by one that votes for the second. The counts "
        "move from (1, 0) to (0, 1) above those of the others, by √2.",
        f"(ε, δ) allow μ = {format_number(enough)}. With noise for a sensitivity of {format_number(sensitivity)}, "
        f"μ = {format_number(mu)}.",
        f"δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) is {format_number(result.lower)} at ε = {format_number(epsilon)}.",
        within=result,
    )


def pairs_by_row(records: int, pairing: str) -> CheckResult:
    """By how much the mean of paired differences moves if a record is removed, in units of C/n, n being public.

    States are numbers: record i has 100i − 40, negative i has 100i. The code that releases clips the differences, to
    whole units, so sums are exact.

    Args:
        records: n.
        pairing: ``rows``, the i-th record with the i-th negative, or ``own``, each record with a negative of its own.
    """
    states, negatives = [100.0 * i - 40 for i in range(records)], [100.0 * i for i in range(records)]
    kept = negatives if pairing == "rows" else negatives[1:]
    before, after = (
        sum(int(clipped([[state - negative]], (1.0,)).item()) for state, negative in zip(mine, theirs, strict=False))
        for mine, theirs in ((states, negatives), (states[1:], kept))
    )
    moved = Fraction(abs(after - before), RADIUS)
    return CheckResult.of(
        f"Record i has the state 100i − 40 and negative i the state 100i, i = 0, …, {records - 1}; C = 1.",
        f"All differences are −40, clipped to −1: their sum is {format_number(before // RADIUS)}.",
        f"Without record 0, the sum is {format_number(after // RADIUS)}; pairing: {pairing}.",
        f"The mean, with the public divisor {records}, moves by {format_upper(float(moved / records))}·C, which is "
        f"{moved}·C/n.",
        lower=float(moved),
        upper=None if pairing == "rows" else 1.0,
    )

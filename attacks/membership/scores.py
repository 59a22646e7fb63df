"""Membership scores: functions that map signals of models to one score for each record, larger for "in".

A *signal* is a number that a model gives a record, larger if the model fits it better: a log-probability, minus a loss,
a logit. Reference models are models like the target whose members the attacker knows. The functions take arrays only;
`reference_models` and `synthetic_text` compute signals.

Sources: Yeom et al., "Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting" (2018), for the loss;
Carlini et al., "Membership Inference Attacks From First Principles" (2022), for LiRA; Zarifzadeh, Liu and Shokri,
"Low-Cost High-Power Membership Inference Attacks" (2024), for RMIA.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpassay.base import defaults, validate
from dpassay.base.arrays import Bools, Floats

Variance: TypeAlias = Literal["auto", "per_record", "global"]

PER_RECORD_MODELS = 32
"""With at least this many reference models of each kind for every record, each record has its own variance."""


def loss_threshold(signals: ArrayLike) -> Floats:
    """The signal itself, minus the loss of each record under the target, shape (n,), to be compared with one threshold
    for all records.

    Source: Yeom et al. 2018, section 4.2.
    """
    return _row("signals", signals)


def logit(log_confidences: ArrayLike) -> Floats:
    """log(p/(1 − p)) from log p < 0, which is close to Gaussian over models, as LiRA assumes.

    Args:
        log_confidences: shape (…), log p of the record's own label or, for text, the mean over tokens.

    Source: Carlini et al. 2022, section V.C.
    """
    values = np.asarray(log_confidences, dtype=np.float64)
    if not np.isfinite(values).all() or (values >= 0).any():
        raise ValueError("log_confidences must be finite and below 0")
    return np.asarray(values - np.log(-np.expm1(values)))


def lira_online(
    target: ArrayLike, references: ArrayLike, inclusion: ArrayLike, *, variance: Variance = "auto"
) -> Floats:
    """The log-ratio of two Gaussians, fitted to the signals of models with the record and of models without it.

    Args:
        target: shape (n,), signals of the target.
        references: shape (k, n), signals of k reference models.
        inclusion: shape (k, n) of bool: whether the model was trained on the record.
        variance: ``per_record``, which needs two models of each kind for every record; ``global``, one variance of each
            kind for all records (pooled around each record's own mean), which needs one; ``auto``: per record if every
            record has `PER_RECORD_MODELS` of each kind, else global.

    Returns:
        Shape (n,), log N(t; μ_in, σ²_in) − log N(t; μ_out, σ²_out).

    Raises:
        ValueError: if shapes do not fit, a signal is not finite, a record has too few models of a kind, or the signals
            do not vary.
    Source: Carlini et al. 2022, Algorithm 1; section VI.B for the global variance (theirs is around one mean of all).
    """
    signals, models, inside = _arrays(target, references, inclusion)
    each = _is_per_record(variance, inside, ~inside)
    mean_in, scale_in = _gaussian(models, inside, "with", each)
    mean_out, scale_out = _gaussian(models, ~inside, "without", each)
    z_in, z_out = (signals - mean_in) / scale_in, (signals - mean_out) / scale_out
    return np.asarray((z_out**2 - z_in**2) / 2 + np.log(scale_out / scale_in))


def lira_offline(
    target: ArrayLike, references: ArrayLike, inclusion: ArrayLike | None = None, *, variance: Variance = "auto"
) -> Floats:
    """How many standard deviations the target's signal is above that of models without the record: z = (t −
    μ_out)/σ_out, shape (n,). The published score is Φ(z), which has the same order but loses digits.

    Arguments and errors as for `lira_online`; models with the record are not used, and an `inclusion` of None means
    that no model was trained on any record.

    Source: Carlini et al. 2022, equation 4.
    """
    none = np.zeros(np.shape(references), dtype=np.bool_) if inclusion is None else inclusion
    signals, models, inside = _arrays(target, references, none)
    mean, scale = _gaussian(models, ~inside, "without", _is_per_record(variance, ~inside))
    return np.asarray((signals - mean) / scale)


def rmia_online(
    target: ArrayLike,
    references: ArrayLike,
    inclusion: ArrayLike,
    population_target: ArrayLike,
    population_references: ArrayLike,
    *,
    gamma: float = defaults.RMIA_GAMMA,
) -> Floats:
    """The fraction of a population whose likelihood ratio the record's exceeds by a factor of at least γ.

    With p(x) the mean of the means of p(x | θ′) over models with and without x, and p(z) the mean over all models,
    none of which was trained on z, it is P_z[ (p(x | θ)/p(x)) / (p(z | θ)/p(z)) ≥ γ ].

    Args:
        target: shape (n,), log p(x | θ) of the target; for text the mean over tokens, so that length does not matter.
        references: shape (k, n), the same for reference models.
        inclusion: shape (k, n) of bool.
        population_target: shape (m,), of population records, on which neither target nor reference models were trained.
        population_references: shape (k, m).
        gamma: γ > 0.

    Returns:
        Shape (n,), multiples of 1/m.

    Raises:
        ValueError: as for `lira_online`, with one model of each kind per record; if the population is empty or γ ≤ 0.

    Source: Zarifzadeh, Liu and Shokri 2024, equations 2 to 4.
    """
    signals, models, inside = _arrays(target, references, inclusion)
    _check_counts(inside, "with", 1)
    _check_counts(~inside, "without", 1)
    mean = np.logaddexp(_log_mean(models, inside), _log_mean(models, ~inside)) - np.log(2)
    others, other_models = _population(population_target, population_references, len(models))
    return _exceeded_fraction(signals - mean, others - _log_mean(other_models), gamma)


def rmia_offline(
    target: ArrayLike,
    references: ArrayLike,
    inclusion: ArrayLike | None,
    population_target: ArrayLike,
    population_references: ArrayLike,
    *,
    gamma: float = defaults.RMIA_GAMMA,
    a: float = defaults.RMIA_A,
) -> Floats:
    """`rmia_online` without models that were trained on the record: p(x) = ((1 + a)·p_out(x) + 1 − a)/2.

    It approximates p_in(x) by a·p_out(x) + 1 − a, a line through (1, 1); likewise for z, as in the authors' code.

    Args:
        target, references, population_target, population_references, gamma: as for `rmia_online`.
        inclusion: shape (k, n) of bool; None means that no model was trained on any record.
        a: in [0, 1]. With 1, p(x) = p_out(x), which suits whole texts, whose probabilities are far below 1.

    Returns:
        Shape (n,), multiples of 1/m.

    Raises:
        ValueError: as for `rmia_online`; if a is out of range.

    Source: Zarifzadeh, Liu and Shokri 2024, section 3 and appendix B.2.
    """
    validate.probability(a=a)
    none = np.zeros(np.shape(references), dtype=np.bool_) if inclusion is None else inclusion
    signals, models, inside = _arrays(target, references, none)
    _check_counts(~inside, "without", 1)
    others, other_models = _population(population_target, population_references, len(models))
    mean, other_mean = _towards_one(_log_mean(models, ~inside), a), _towards_one(_log_mean(other_models), a)
    return _exceeded_fraction(signals - mean, others - other_mean, gamma)


def _row(name: str, values: ArrayLike) -> Floats:
    row = np.asarray(values, dtype=np.float64)
    if row.ndim != 1:
        raise ValueError(f"{name} must be a 1-D array, not of shape {row.shape}")
    if not np.isfinite(row).all():
        raise ValueError(f"{name} must be finite, but is not for record {int(np.argmin(np.isfinite(row)))}")
    return row


def _matrix(name: str, values: ArrayLike, columns: int) -> Floats:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != columns or not len(matrix):
        raise ValueError(f"{name} must have one row per model and {columns} columns, not shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        model, record = np.argwhere(~np.isfinite(matrix))[0]
        raise ValueError(f"{name} must be finite, but is not for model {model} and record {record}")
    return matrix


def _arrays(target: ArrayLike, references: ArrayLike, inclusion: ArrayLike) -> tuple[Floats, Floats, Bools]:
    signals = _row("target", target)
    models = _matrix("references", references, len(signals))
    inside = np.asarray(inclusion)
    if inside.dtype != np.bool_ or inside.shape != models.shape:
        raise ValueError(f"inclusion must be a bool array of shape {models.shape}, not {inside.dtype} {inside.shape}")
    return signals, models, inside


def _population(target: ArrayLike, references: ArrayLike, models: int) -> tuple[Floats, Floats]:
    signals = _row("population_target", target)
    if not len(signals):
        raise ValueError("population_target must not be empty, since RMIA compares records with a population")
    matrix = _matrix("population_references", references, len(signals))
    if len(matrix) != models:
        raise ValueError(f"population_references must have one row for each of {models} models, not {len(matrix)}")
    return signals, matrix


def _is_per_record(variance: Variance, *kinds: Bools) -> bool:
    validate.one_of(("auto", "per_record", "global"), variance=variance)
    if variance != "auto":
        return variance == "per_record"
    return all(bool((kind.sum(axis=0) >= PER_RECORD_MODELS).all()) for kind in kinds)


def _check_counts(chosen: Bools, which: str, least: int) -> None:
    counts = chosen.sum(axis=0)
    if counts.size and counts.min() < least:
        record = int(counts.argmin())
        raise ValueError(
            f"every record needs {least} reference model{'s' if least > 1 else ''} {which} it, but record {record} has "
            f"{counts[record]}: train more models"
        )


def _gaussian(models: Floats, chosen: Bools, which: str, per_record: bool) -> tuple[Floats, Floats | float]:
    """Mean and standard deviation (unbiased variance) of each record's signals over the chosen models."""
    _check_counts(chosen, which, 2 if per_record else 1)
    counts = chosen.sum(axis=0)
    mean = np.where(chosen, models, 0.0).sum(axis=0) / counts
    squares = np.where(chosen, (models - mean) ** 2, 0.0).sum(axis=0)
    # The mean of equal signals may be off by rounding, so their sum of squares need not be 0.
    constant = np.where(chosen, models, -np.inf).max(axis=0) == np.where(chosen, models, np.inf).min(axis=0)
    if per_record:
        if constant.any():
            record = int(constant.argmax())
            raise ValueError(f"all models {which} record {record} give it the same signal; use the global variance")
        return mean, np.sqrt(squares / (counts - 1))
    freedom = int(counts.sum()) - len(counts)
    if len(counts) and freedom < 1:
        raise ValueError(
            f"no record has 2 reference models {which} it, so no variance can be fitted: train more models"
        )
    if len(counts) and constant.all():
        raise ValueError(f"all reference models {which} a record give it the same signal, so no variance can be fitted")
    return mean, float(np.sqrt(squares.sum() / max(1, freedom)))


def _log_mean(logs: Floats, chosen: Bools | None = None) -> Floats:
    """log of the mean of exp over the (chosen) rows."""
    if chosen is None:
        chosen = np.ones(logs.shape, dtype=np.bool_)
    return np.asarray(special.logsumexp(np.where(chosen, logs, -np.inf), axis=0) - np.log(chosen.sum(axis=0)))


def _towards_one(log_out: Floats, a: float) -> Floats:
    """log of ((1 + a)·p + 1 − a)/2."""
    with np.errstate(divide="ignore"):  # a = 1: log 0
        return np.asarray(np.logaddexp(log_out + np.log((1 + a) / 2), np.log((1 - a) / 2)))


def _exceeded_fraction(ratios: Floats, others: Floats, gamma: float) -> Floats:
    """The fraction of `others` that each log-ratio exceeds by at least log γ."""
    least = np.log(validate.positive(gamma=gamma))
    return np.asarray(np.searchsorted(np.sort(others), ratios - least, side="right") / len(others))

"""Leave-one-out loss: how much likelier the released tokens were with each record than without it.

The strongest attacker for one data set and one output: it sees the logits of every row. `LeaveOneOut` watches a run and
compares, token by token, with the same batch less one row; `rerun` takes the record out of the whole pipeline
(assignment, batching, counts), which also shows what fixed-size batching or contexts of several records leak.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", appendix D.5.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cupel.accounting import ex_post, validate
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-53


class LeaveOneOut:
    """Watches a run and adds up, per record i, log p_D(x) − log p_{D∖i}(x) over the tokens of its slot.

    Rows are contexts of one record each. For ``median`` and ``mean`` the loss adds up over tokens. Without protection
    (``none``) each document is written from one record of its slot, drawn uniformly, so a document's law is the mean
    of the laws of its slot's records, and the loss adds up over documents.

    Args:
        records: number of records of the run.
        aggregate: ``median``, ``mean`` or ``none``.
        clip: c of the clipped logits; not used for ``none``.
        temperature: τ.
        denominator: s of the mean.
        rounding: a bound on |log p̃(y)/p(y)| between the law that is sampled and the exact softmax.

    Raises:
        ValueError: for impossible parameters.
    """

    def __init__(
        self,
        records: int,
        *,
        aggregate: str,
        clip: float,
        temperature: float,
        denominator: int | None = None,
        rounding: float = 0.0,
    ) -> None:
        validate.integer(records=records)
        validate.one_of(("median", "mean", "none"), aggregate=aggregate)
        validate.positive(temperature=temperature)
        validate.non_negative(rounding=rounding)
        if aggregate == "mean":
            validate.integer(minimum=1, denominator=denominator or 0)
        self._aggregate, self._clip, self._temperature = aggregate, clip, temperature
        self._denominator, self._rounding = denominator or 1, rounding
        self._losses = np.zeros(records)
        self._errors = np.zeros(records)
        self._slots: dict[int, tuple[int, ...]] = {}
        self._open: dict[int, tuple[int, Floats, float]] = {}  # slot → document, log-probability of each row, its error

    def step(
        self,
        *,
        slot: int,
        records: Sequence[int],
        clipped: NDArray[np.floating],
        medians: ex_post.Medians | None,
        log_probability: float,
        token: int,
        document: int,
        position: int,
    ) -> None:
        """Takes in one released token.

        Args:
            slot: the batch.
            records: the record of each row.
            clipped: shape (B, V), the rows' logits, clipped unless there is no protection.
            medians: their medians, for ``median``.
            log_probability: log-probability of the token; not needed here.
            token: the token that was released.
            document, position: where it stands.
        """
        rows = np.asarray(records, dtype=np.int64)
        known = self._slots.setdefault(slot, tuple(records))
        if known != tuple(records):
            raise ValueError("the records of a slot must stay the same, in the same order, for a whole run")
        if self._aggregate == "none":
            self._unprotected(slot, rows, np.asarray(clipped, dtype=np.float64), token, document)
            return
        if self._aggregate == "median":
            if medians is None:
                raise ValueError("the medians of the batch are needed to follow a median")
            losses = medians.leave_one_out(token, self._temperature)
            error = ex_post.slack(len(medians.median), medians.clip, self._temperature)
        else:
            losses, error = self._mean(np.asarray(clipped, dtype=np.float64), token)
        self._add(rows, losses, error + 2 * self._rounding)

    @property
    def losses(self) -> Floats:
        """Shape (records,): the loss of each record; 0 for one that no slot used."""
        self._close()
        return self._losses.copy()

    @property
    def errors(self) -> Floats:
        """Shape (records,): a bound on the error of each loss, rounding of the sampled law included."""
        self._close()
        return self._errors.copy()

    def by_slot(self) -> dict[int, float]:
        """The largest |loss| of a record of each slot; 0 for a slot without records."""
        losses = np.abs(self.losses)
        return {slot: float(losses[list(rows)].max(initial=0.0)) for slot, rows in sorted(self._slots.items())}

    def errors_by_slot(self) -> dict[int, float]:
        """A bound on the error of each value of `by_slot`."""
        errors = self.errors
        return {slot: float(errors[list(rows)].max(initial=0.0)) for slot, rows in sorted(self._slots.items())}

    def _add(self, rows: NDArray[np.int64], losses: Floats, error: float) -> None:
        self._losses[rows] += losses
        # The addition rounds its result by at most half a unit in the last place.
        self._errors[rows] += error + _UNIT_ROUNDOFF * np.abs(self._losses[rows])

    def _mean(self, clipped: Floats, token: int) -> tuple[Floats, float]:
        """Log-ratios of softmax(Σ z/(sτ)) and the same without each row; the sums are exact on the logits' grid."""
        scale = self._denominator * self._temperature
        total = clipped.sum(axis=0)
        without = (total - clipped) / scale
        base = total[token] / scale - special.logsumexp(total / scale)
        losses = base - (without[:, token] - special.logsumexp(without, axis=1))
        reach = max(len(clipped), 1) * self._clip / self._denominator
        return np.asarray(losses), ex_post.slack(clipped.shape[1], reach, self._temperature)

    def _unprotected(self, slot: int, rows: NDArray[np.int64], logits: Floats, token: int, document: int) -> None:
        current = self._open.get(slot)
        if current is None or current[0] != document:
            self._close(slot)
            current = (document, np.zeros(len(rows)), 0.0)
        scaled = logits / self._temperature
        log_law = scaled[:, token] - special.logsumexp(scaled, axis=1)
        spread = float(np.ptp(logits, axis=1).max(initial=0.0)) if np.isfinite(logits).all() else _LARGEST_SPREAD
        error = ex_post.slack(logits.shape[1], spread / 2, self._temperature) + 2 * self._rounding
        total = current[1] + log_law
        error += _UNIT_ROUNDOFF * float(np.abs(total).max(initial=0.0))
        self._open[slot] = (document, total, current[2] + error)

    def _close(self, slot: int | None = None) -> None:
        """Turns the documents that were followed row by row into losses."""
        for place in [slot] if slot is not None else list(self._open):
            if place in self._open:
                _, log_laws, error = self._open.pop(place)
                self._add(np.array(self._slots[place], dtype=np.int64), mixture_losses(log_laws), error)


_LARGEST_SPREAD = 1e3
"""Logits are at most this far apart; −inf stands for a token that a model never writes."""


def mixture_losses(log_laws: Floats) -> Floats:
    """log mean_j p_j − log mean_{j≠i} p_j for every i, for a document written from one row drawn uniformly.

    Args:
        log_laws: shape (B,), log p_j of the document under each row.

    Returns:
        Shape (B,). With one row only, nothing is left without it: +inf, because the document then cannot be written.
    """
    count = len(log_laws)
    if count <= 1:
        return np.full(count, np.inf)
    both = special.logsumexp(log_laws) - np.log(count)
    without = np.where(np.eye(count, dtype=bool), -np.inf, log_laws[None, :])
    return np.asarray(both - (special.logsumexp(without, axis=1) - np.log(count - 1)))

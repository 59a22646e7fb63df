"""Checks of the statements of "Clustering and Median Aggregation Improve Differentially Private Inference".

Logit vectors are as they are after clipping: their largest entry is c and none is below −c. Losses are differences of
two log-probabilities of the released medians; `ex_post.slack` bounds what floats err by in such a difference
(docs/proofs/ex-post.md, Theorem 5) and is subtracted from what is called a lower bound. Of checks, `clip` is c and
`temperature` τ.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from dpassay.accounting import accountant, ex_post
from dpassay.accounting.events import BoundedRangeSelectionDpEvent
from dpassay.base.arrays import Floats
from dpassay.base.number_format import format_lower, format_number, format_upper
from dpassay.claims.published.laws import Coin, certain_epsilon_of_coins
from dpassay.claims.published.statement import CheckResult

Rows = Sequence[Sequence[float]]


def published_cost(rows: Rows, token: int, temperature: float, *, right_of_even: float | None = None) -> float:
    """γ of Definition 4, of a batch of two or more.

    Args:
        rows: clipped logits.
        token: the released token.
        right_of_even: the right-median of a batch of even size in every coordinate; by default b, the larger of the
            middle values.
    """
    columns, half = np.sort(np.asarray(rows, dtype=np.float64), axis=0), len(rows) // 2
    left, right = columns[half - 1], columns[half + 1 if len(rows) % 2 else half]
    middle = columns[half] if len(rows) % 2 else (left + right) / 2
    if right_of_even is not None and len(rows) % 2 == 0:
        right = np.full_like(middle, right_of_even)

    def log_total(logits: Floats) -> float:
        return float(np.logaddexp.reduce(logits / temperature))

    log_alpha = float(middle[token] - right[token]) / temperature + log_total(left) - log_total(middle)
    log_beta = float(middle[token] - left[token]) / temperature + log_total(right) - log_total(middle)
    return max(-log_alpha, log_beta) + 0.0  # so that no zero is negative


def _drop(before: Rows, after: Rows, token: int, clip: float, temperature: float) -> float:
    """How much less a token's log-probability is from the median of `after` than from that of `before`."""
    first, second = (
        ex_post.Medians.of(np.asarray(rows, dtype=np.float64), clip=clip).log_probability(token, temperature)
        for rows in (before, after)
    )
    return first - second


def _certain_loss(drops: Sequence[float], vocabulary: int, clip: float, temperature: float) -> float:
    """A lower bound on the absolute log-ratio of several tokens, one of each batch."""
    return abs(math.fsum(drops)) * (1 - 2.0**-50) - len(drops) * ex_post.slack(vocabulary, clip, temperature)


def _median(rows: Rows) -> Floats:
    return np.median(np.asarray(rows, dtype=np.float64), axis=0)


def _shown(rows: Rows) -> str:
    return ", ".join(f"({', '.join(format_number(entry) for entry in row)})" for row in rows)


def _median_shown(rows: Rows) -> str:
    return _shown([_median(rows).tolist()])


# --- medians


def cost_of_a_batch(
    rows: Rows,
    tokens: Sequence[int],
    clip: float,
    temperature: float,
    adjacency: str = "add_remove",
    right_of_even: float | None = None,
) -> CheckResult:
    """The published cost of tokens that one batch releases, against the exact cost of the worst neighbour."""
    costs = [published_cost(rows, x, temperature, right_of_even=right_of_even) for x in tokens]
    exact = ex_post.token_costs(
        np.asarray(rows, dtype=np.float64), tokens, clip=clip, temperature=temperature, adjacency=adjacency
    ).epsilon
    released = " and ".join(f"token {x}" for x in tokens)
    steps = [
        f"The batch {_shown(rows)} has the median {_median_shown(rows)}; c = {format_number(clip)}, τ = "
        f"{format_number(temperature)}. Released: {released}.",
        f"γ of Definition 4 is {' + '.join(map(format_number, costs))}.",
    ]
    if right_of_even is not None:
        meant = math.fsum(published_cost(rows, x, temperature) for x in tokens)
        steps.append(f"With the larger middle value b as right-median, γ is {format_number(meant)}.")
    steps.append(f"Over all neighbours under {adjacency} the log-ratio of the tokens is at most {format_upper(exact)}.")
    return CheckResult.of(*steps, upper=exact, claimed=math.fsum(costs))


def exchanged_row(
    rows: Rows, row: int, by: Sequence[float], token: int, clip: float, temperature: float, records_of_row: int = 1
) -> CheckResult:
    """The published cost of a token, against the loss where a row turns into another one.

    A row does so where its record is exchanged, or where it has several records and one of them leaves.
    """
    after = [*rows[:row], by, *rows[row + 1 :]]
    claimed = published_cost(rows, token, temperature)
    loss = _certain_loss([_drop(rows, after, token, clip, temperature)], len(by), clip, temperature)
    how = "is exchanged for one" if records_of_row == 1 else f"of {records_of_row} records loses one, and is then one"
    return CheckResult.of(
        f"D has one batch, {_shown(rows)}, with the median {_median_shown(rows)}: γ of token {token} is "
        f"{format_number(claimed)}.",
        f"The row {_shown([rows[row]])} {how} with the logits {_shown([by])}: the median is {_median_shown(after)}.",
        f"The log-probability of token {token} moves by at least {format_lower(loss)}.",
        lower=loss,
        claimed=claimed,
    )


def fixed_size_batches(
    batch_size: int, batches: int, clip: float, temperature: float, assignment: str = "in_order"
) -> CheckResult:
    """Batches whose majority of two hangs on where they begin; each then loses its majority as one record is put first.

    Args:
        batch_size: an even number.
        batches: an even number.
        assignment: "in_order", where batches are cut from the records in order, or "by_record", where each record has
            its batch by itself.
    """
    few, many = batch_size // 2 - 1, batch_size // 2 + 1
    logits = {"A": (clip, -clip), "B": (-clip, clip)}
    blocks = list(itertools.islice(itertools.cycle(("B" * few + "A" * many, "A" * few + "B" * many)), batches))
    if assignment == "in_order":
        records = "B" + "".join(blocks)
        shifted = [records[start * batch_size : (start + 1) * batch_size] for start in range(batches)]
    else:
        shifted = ["B" + blocks[0], *blocks[1:]]
    costs, drops = [], []
    for number, (own, moved) in enumerate(zip(blocks, shifted, strict=True)):
        before, after = [logits[letter] for letter in own], [logits[letter] for letter in moved]
        costs.append(published_cost(before, number % 2, temperature))
        drops.append(_drop(before, after, number % 2, clip, temperature))
    changed = sum(own != moved for own, moved in zip(blocks, shifted, strict=True))
    total = _certain_loss(drops, 2, clip, temperature)
    return CheckResult.of(
        f"Records have the logits A = {_shown([logits['A']])} or B = {_shown([logits['B']])}; D has {batches} "
        f"batches of {batch_size}, in turn {few} B and {many} A, {few} A and {many} B. Each releases the token of "
        "its majority.",
        f"The middle two of each batch agree: the largest γ of a batch is {format_number(max(costs))}.",
        f"D′ has one more B before them all, and an incomplete batch at the end is not used: {changed} batches "
        f"change, and the first has {shifted[0].count('A')} A and {shifted[0].count('B')} B.",
        f"The log-probabilities of the {batches} tokens fall by at least {format_lower(total)} together.",
        lower=total,
        claimed=max(costs),
    )


def identical_vectors(rows: Rows, token: int, clip: float, temperature: float) -> CheckResult:
    """The loss by the removal of a row from a batch with three identical rows.

    Raises:
        ValueError: if no three rows agree.
    """
    copies = max(Counter(map(tuple, rows)).values())
    if copies < 3:
        raise ValueError("the statement is about three identical rows")
    others = [[*rows[:removed], *rows[removed + 1 :]] for removed in range(len(rows))]
    drops = [_drop(rows, rest, token, clip, temperature) for rest in others]
    worst = max(range(len(rows)), key=lambda removed: abs(drops[removed]))
    moved = float(np.abs(_median(rows) - _median(others[worst])).max())
    loss = _certain_loss([drops[worst]], len(rows[0]), clip, temperature)
    return CheckResult.of(
        f"D is the batch {_shown(rows)}, {copies} rows of it identical; its median is {_median_shown(rows)}.",
        f"Without the row {_shown([rows[worst]])} the median is {_median_shown(others[worst])}: the local "
        f"sensitivity is {format_number(moved)} or more.",
        f"The log-probability of token {token} moves by at least {format_lower(loss)}, c = "
        f"{format_number(clip)}, τ = {format_number(temperature)}.",
        lower=loss,
    )


def reported_cost(rows: Rows, removed: int, clip: float, temperature: float) -> CheckResult:
    """The success of an adversary who sees the reported ε, for two batches with one median.

    Her prior is 1/2. Whatever token is released, the reported numbers of both batches differ, and she is never wrong.

    Raises:
        ValueError: if the batches have different medians: then this is no example.
    """
    rest = [*rows[:removed], *rows[removed + 1 :]]
    tokens = range(len(rows[0]))
    with_, without = ([published_cost(batch, x, temperature) for x in tokens] for batch in (rows, rest))
    told_apart = all(abs(first - second) > 1e-6 for first, second in zip(with_, without, strict=True))
    if not np.array_equal(_median(rows), _median(rest)):
        raise ValueError("the two batches release different laws")
    bound = max(*with_, *without)
    return CheckResult.of(
        f"D is the batch {_shown(rows)} and D′ lacks {_shown([rows[removed]])}; both have the median "
        f"{_median_shown(rows)}, so the released token says nothing of which it is.",
        *(
            f"If token {x} is released, ε(D, X) is {format_number(with_[x])} and ε(D′, X) is "
            f"{format_number(without[x])}."
            for x in tokens
        ),
        f"At prior 1/2, an ε of at most {format_number(bound)} would keep an adversary right with probability at "
        f"most {format_number(1 / (1 + math.exp(-bound)), digits=8)}. Who sees the reported ε is "
        + ("always right." if told_apart else "right half of the time."),
        lower=1.0 if told_apart else 0.5,
        claimed=1 / (1 + math.exp(-bound)),
    )


def rebalanced_batches(
    first: Rows,
    second: Rows,
    token: int,
    clip: float,
    temperature: float,
    count_epsilon: float,
    moved: int | None = None,
    moved_to: Sequence[float] = (),
) -> CheckResult:
    """ε of the noisy counts plus the largest cost of a batch, against what both lose.

    Both batches release `token`. Under add_remove the upper bound is that of docs/proofs/ex-post.md, Theorem 6. Where a
    record is exchanged, row `moved` leaves the first batch, and the new record has the logits `moved_to` in the second;
    the noisy counts lose something as well where they are exact, which is not counted.
    """
    claimed = count_epsilon + max(published_cost(batch, token, temperature) for batch in (first, second))
    steps = [
        f"Two batches, {_shown(first)} and {_shown(second)}, release token {token} each; the noisy counts have ε = "
        f"{format_number(count_epsilon)}: claimed are {format_number(claimed)}."
    ]
    if moved is None:
        parts = [
            ex_post.gamma_star(np.asarray(batch, dtype=np.float64), token, clip=clip, temperature=temperature)
            for batch in (first, second)
        ]
        upper = math.nextafter(count_epsilon + max(parts), math.inf)
        steps += [
            "A record more or less changes one noisy count by one and one batch: centres are chosen by the noisy "
            "counts, and each record has its batch by itself.",
            f"Over all neighbours the batches lose at most {' and '.join(map(format_upper, parts))}; with the counts "
            f"that is at most {format_upper(upper)}.",
        ]
        return CheckResult.of(*steps, upper=upper, claimed=claimed)
    less, more = [*first[:moved], *first[moved + 1 :]], [*second, moved_to]
    drops = [_drop(old, new, token, clip, temperature) for old, new in ((first, less), (second, more))]
    lower = _certain_loss(drops, len(first[0]), clip, temperature)
    steps += [
        f"{_shown([first[moved]])} is exchanged for a record of the second batch with the logits {_shown([moved_to])}: "
        f"the medians {_median_shown(first)} and {_median_shown(second)} become {_median_shown(less)} and "
        f"{_median_shown(more)}.",
        f"The log-probabilities of the two tokens change by {' and '.join(format_number(-drop) for drop in drops)}, "
        f"by at least {format_lower(lower)} together.",
    ]
    return CheckResult.of(*steps, lower=lower, claimed=claimed)


# --- means


def _by_zcdp(range_: float, tokens: int, delta: float) -> float:
    return accountant("zcdp", "add_remove").compose(BoundedRangeSelectionDpEvent(range_), tokens).epsilon(delta).value


def _two_kinds(odds: float, others: int = 1) -> Coin:
    """The probability of a token whose logit over τ is `odds` above those of all others, and that of the others."""
    weight = others * math.exp(-odds)
    return 1 / (1 + weight), weight / (1 + weight)


def actual_batch_size(
    batch_size: int,
    vocabulary: int,
    clip: float,
    temperature: float,
    tokens: int,
    records: int,
    denominator: str = "actual",
) -> CheckResult:
    """A mean over the records that are there, of a batch in which one record contradicts all others.

    Whether a token is 0 is all that tells the two data sets apart, because all other tokens keep their ratio. Upper
    bound: as one of s records leaves, the changes of the mean logits lie in an interval of length 4c/s, and of length
    2c/s where the denominator is fixed.

    Args:
        batch_size: s.
        vocabulary: V.
        tokens: of the batch.
        records: n, for δ = n^−1.1.
        denominator: "actual" or "fixed".
    """
    delta = records**-1.1
    sums = [batch_size - 2, batch_size - 1]  # of what favours token 0, over c
    sizes = [batch_size, batch_size - 1 if denominator == "actual" else batch_size]
    odds = [2 * clip * total / (size * temperature) for total, size in zip(sums, sizes, strict=True)]
    laws = [_two_kinds(each, vocabulary - 1) for each in odds]
    lower = certain_epsilon_of_coins(*laws, count=tokens, delta=delta)
    range_ = (4 if denominator == "actual" else 2) * clip / (batch_size * temperature)
    upper = _by_zcdp(range_, tokens, delta)
    return CheckResult.of(
        f"In D, {batch_size - 1} records are sure of token 0, with logits {format_number(clip)} there and "
        f"{format_number(-clip)} at the other {vocabulary - 1} tokens, and one record has the opposite. D′ lacks it.",
        f"The mean puts token 0 above the others by {format_number(odds[0])} τ in D and {format_number(odds[1])} τ "
        f"in D′: its probability is {format_number(laws[0][0])} and {format_number(laws[1][0])}.",
        f"{tokens} tokens: ε at δ = {format_number(delta)} is at least {format_lower(lower)} for this pair.",
        f"For no pair it is above {format_upper(upper)}: a token is {format_number(range_)}-bounded-range.",
        lower=lower,
        upper=upper,
    )


def means_of_single_records(
    batch_size: int, clip: float, temperature: float, tokens: Sequence[int], records: Sequence[int]
) -> CheckResult:
    """Contexts of one record and a fixed denominator: the ε of zCDP, the largest over the data sets of a table."""
    range_ = 2 * clip / (batch_size * temperature)
    results = [_by_zcdp(range_, count, size**-1.1) for count, size in zip(tokens, records, strict=True)]
    return CheckResult.of(
        f"As a record leaves, the mean logits change by numbers in [−c/s, c/s]: a token is "
        f"{format_number(range_)}-bounded-range, hence (η²/8)-zCDP.",
        *(
            f"{count} tokens at δ = {size}^−1.1: ε is at most {format_upper(each)}."
            for count, size, each in zip(tokens, records, results, strict=True)
        ),
        upper=max(results),
    )


def means_of_contexts(
    batch_size: int, clip: float, temperature: float, tokens: int, records: int, records_per_context: int = 2
) -> CheckResult:
    """A context that turns from one token to the other as one of its records leaves; the others say nothing.

    With one record a context, the context leaves with it. Upper bound: as a context becomes another one, the changes of
    the mean logits lie in an interval of length 4c/s, and as it leaves, in one of length 2c/s.
    """
    delta, step = records**-1.1, 2 * clip / (batch_size * temperature)
    laws = [_two_kinds(step), _two_kinds(-step if records_per_context > 1 else 0.0)]
    lower = certain_epsilon_of_coins(*laws, count=tokens, delta=delta)
    single = _by_zcdp(step, tokens, delta)
    upper = _by_zcdp(2 * step, tokens, delta) if records_per_context > 1 else single
    after = f"({format_number(-clip)}, {format_number(clip)})" if records_per_context > 1 else "gone"
    return CheckResult.of(
        f"Two tokens; {batch_size - 1} contexts have the logits ({format_number(clip)}, {format_number(clip)}) and "
        f"say nothing. One has ({format_number(clip)}, {format_number(-clip)}) in D, and is {after} in D′, where "
        "one of its records is missing.",
        f"Token 0 has the probability {format_number(laws[0][0])} in D and {format_number(laws[1][0])} in D′.",
        f"{tokens} tokens: ε at δ = {format_number(delta)} is at least {format_lower(lower)}, and at most "
        f"{format_upper(upper)} for any pair.",
        f"If a context had one record, it would be at most {format_upper(single)}.",
        lower=lower,
        upper=upper,
    )

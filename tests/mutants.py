"""Known faults, put into the code one by one; for each, tests are named that must fail: ``python tests/mutants.py``.

A fault here draws less noise than is charged, charges less than was drawn, or understates a bound. The faults run in a
copy of the checkout, which is imported in place of the installed package. The named tests must pass in the copy before
it is changed, and with the fault a test must fail by an assertion: a crash or a failed import is no proof.

``python tests/mutants.py NAME…`` runs some of them, ``--list`` prints the names.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JOBS = 2  # mutants at once
SECONDS = 300  # of one run of the tests of a mutant, after which it counts as survived


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        name: to run it alone.
        file: that it changes, from the root of the checkout.
        old: text that occurs exactly once in the file.
        new: what replaces it.
        tests: files or single tests, none of them slow, of which at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


DRAWN = "tests/mechanisms/test_drawn_and_charged.py"
DESCENT = "tests/mechanisms/two_stage/test_descent.py"
MARGINALS = "tests/mechanisms/marginals/test_generator.py"
TABLE_EVOLUTION = "tests/mechanisms/table_evolution/test_table_evolution.py"
NOISE = "tests/mechanisms/primitives/test_noise.py"
WEIGHTS = "tests/mechanisms/secret_evolution/test_secret_weights.py"
BOUNDS = "tests/accounting/test_bounds_hold.py"
BOUND = f"{BOUNDS}::test_no_attacker_exceeds_a_bound"
CHOICES = "tests/app/jobs/test_choices.py"
EX_POST = "tests/accounting/ex_post/test_ex_post.py"
OWN_PAIR = "tests/attacks/black_box/test_own_neighbors.py"
WORST = "tests/attacks/black_box/test_worst_cases.py"
PROBES = "tests/attacks/black_box/test_probes.py"
PLAINEST = "tests/audits/games/test_plainest_event.py"
TOP_K = "tests/mechanisms/private_inference/test_top_k.py"

MECHANISMS = (
    Mutant(
        "fine-tuning: gradient noise × .9",
        "mechanisms/two_stage/training.py",
        "Grid.of(mechanism.noise_multiplier, mechanism.adjacency)",
        "Grid.of(0.9 * mechanism.noise_multiplier, mechanism.adjacency)",
        (f"{DRAWN}::test_noise_of_gradients",),
    ),
    Mutant(
        "fine-tuning: the grid is made for noise × .9",
        "mechanisms/two_stage/descent.py",
        "scale = Fraction(noise_multiplier) * sum_sensitivity(adjacency)",
        "scale = Fraction(9, 10) * Fraction(noise_multiplier) * sum_sensitivity(adjacency)",
        (f"{DESCENT}::test_the_noise_is_at_least_what_the_event_says",),
    ),
    Mutant(
        "fine-tuning: sensitivity of a replaced row halved",
        "mechanisms/two_stage/descent.py",
        "scale = Fraction(noise_multiplier) * sum_sensitivity(adjacency)",
        "scale = Fraction(noise_multiplier)",
        (f"{DRAWN}::test_noise_of_gradients",),
    ),
    Mutant(
        "fine-tuning: clip × 1.1",
        "mechanisms/two_stage/descent.py",
        "    integers *= scale\n    np.trunc(integers, out=integers)\n    while integers @ integers > grid.radius**2:",
        "    integers *= 1.1 * scale\n    np.trunc(integers, out=integers)\n"
        "    while integers @ integers > 1.21 * grid.radius**2:",
        (f"{DRAWN}::test_noise_of_gradients",),
    ),
    Mutant(
        "fine-tuning: gradients are not clipped",
        "mechanisms/two_stage/descent.py",
        "    while integers @ integers > grid.radius**2:",
        "    integers *= max(length, clip) / clip\n    while False:",
        (f"{DESCENT}::test_no_gradient_leaves_the_clip_however_small_or_large",),
    ),
    Mutant(
        "fine-tuning: batches are cut at their expected size",
        "mechanisms/two_stage/training.py",
        "yield self._present[self.source.bernoulli(np.full(count, min(1.0, mechanism.rate)))]",
        "yield self._present[self.source.bernoulli(np.full(count, min(1.0, mechanism.rate)))][: mechanism.batch_size]",
        (f"{DRAWN}::test_batches_of_fine_tuning",),
    ),
    Mutant(
        "fine-tuning: drawn rate + 5 %",
        "mechanisms/two_stage/training.py",
        "min(1.0, mechanism.rate)",
        "min(1.0, 1.05 * mechanism.rate)",
        (f"{DRAWN}::test_batches_of_fine_tuning",),
    ),
    Mutant(
        "fine-tuning: drawn rate × 2",
        "mechanisms/two_stage/training.py",
        "min(1.0, mechanism.rate)",
        "min(1.0, 2 * mechanism.rate)",
        (f"{DRAWN}::test_batches_of_fine_tuning",),
    ),
    Mutant(
        "fine-tuning: charged rate × .95",
        "mechanisms/two_stage/generator.py",
        "dp_event.PoissonSampledDpEvent(self.rate, item)",
        "dp_event.PoissonSampledDpEvent(0.95 * self.rate, item)",
        (f"{DRAWN}::test_batches_of_fine_tuning",),
    ),
    Mutant(
        "fine-tuning: the first rows are in all batches",
        "mechanisms/two_stage/training.py",
        "self.source.bernoulli(np.full(count, min(1.0, mechanism.rate)))",
        "np.arange(count) < mechanism.batch_size",
        (f"{DRAWN}::test_batches_of_fine_tuning",),
    ),
    Mutant(
        "fine-tuning: every second step is not charged",
        "mechanisms/two_stage/training.py",
        "run.step(charge=Charge(key=key, stage=STEPS",
        "step % 2 == 0 or run.step(charge=Charge(key=key, stage=STEPS",
        (f"{DRAWN}::test_batches_of_fine_tuning",),
    ),
    Mutant(
        "marginals: ρ of the release halved",
        "mechanisms/marginals/generator.py",
        "return dp_event.ZCDpEvent(self.rho)",
        "return dp_event.ZCDpEvent(self.rho / 2)",
        (f"{MARGINALS}::test_a_run_costs_one_event_of_rho",),
    ),
    Mutant(
        "marginals: the release is not charged before it is drawn",
        "mechanisms/marginals/generator.py",
        "run.step(charge=charge)\n            try:",
        "try:",
        (f"{MARGINALS}::test_a_release_is_charged_before_it_is_drawn",),
    ),
    Mutant(
        "marginals: a replaced row counts once",
        "mechanisms/marginals/generator.py",
        "return 2 if self.adjacency is Adjacency.REPLACE_ONE else 1",
        "return 1",
        (f"{MARGINALS}::test_neighbours_differ_in_as_many_rows_as_opendp_is_told",),
    ),
    Mutant(
        "marginals: OpenDP may spend four times ρ",
        "mechanisms/marginals/tables.py",
        "OPENDP_SHARE = 1 - 2.0**-8",
        "OPENDP_SHARE = 4 * (1 - 2.0**-8)",
        ("tests/mechanisms/marginals/test_tables.py::test_rounding_of_scores_is_within_the_bound",),
    ),
    Mutant(
        "marginals: models of any size",
        "mechanisms/marginals/tables.py",
        "LARGEST_TOTAL = 2.0**25",
        "LARGEST_TOTAL = 2.0**40",
        ("tests/mechanisms/marginals/test_tables.py::test_rounding_of_scores_is_within_the_bound",),
    ),
    Mutant(
        "Aug-PE: noise of votes × .9",
        "mechanisms/aug_pe/generator.py",
        "self.source.add_gaussian(exact, sigma)",
        "self.source.add_gaussian(exact, 0.9 * sigma)",
        (f"{DRAWN}::test_votes_of_aug_pe",),
    ),
    Mutant(
        "Aug-PE: charge of replaced records halved",
        "mechanisms/evolution/voting.py",
        "dp_event.GaussianDpEvent(_root_two_times(noise_multiplier))",
        "dp_event.GaussianDpEvent(2 * noise_multiplier)",
        (f"{DRAWN}::test_votes_of_aug_pe",),
    ),
    Mutant(
        "Aug-PE: votes are not charged",
        "mechanisms/aug_pe/generator.py",
        "event=self.mechanism.votes_event())\n        if",
        "event=dp_event.NoOpDpEvent())\n        if",
        (f"{DRAWN}::test_votes_of_aug_pe",),
    ),
    Mutant(
        "Aug-PE: a record votes twice",
        "mechanisms/evolution/voting.py",
        "return np.bincount(nearest_candidates(vectors, candidates), minlength=len(candidates)).astype(np.int64)",
        "return 2 * np.bincount(nearest_candidates(vectors, candidates), minlength=len(candidates)).astype(np.int64)",
        (f"{DRAWN}::test_votes_of_aug_pe",),
    ),
    Mutant(
        "table evolution: noise of votes × .9",
        "mechanisms/table_evolution/votes.py",
        "source.rounded_normals(exact.size, grid.bits)) / grid.units",
        "source.rounded_normals(exact.size, grid.bits) * 9 // 10) / grid.units",
        (f"{DRAWN}::test_votes_of_table_evolution",),
    ),
    Mutant(
        "table evolution: half of the noise of a round",
        "mechanisms/table_evolution/evolution.py",
        "return votes_grids(self.noise_multiplier, [",
        "return votes_grids(self.noise_multiplier / 2, [",
        (f"{DRAWN}::test_votes_of_table_evolution",),
    ),
    Mutant(
        "table evolution: a row votes twice",
        "mechanisms/table_evolution/votes.py",
        "return np.bincount(chosen_candidates(candidates, view, positions), minlength=count).astype(np.int64)",
        "return 2 * np.bincount(chosen_candidates(candidates, view, positions), minlength=count).astype(np.int64)",
        (f"{TABLE_EVOLUTION}::test_neighbours_move_the_votes_as_charged",),
    ),
    Mutant(
        "secrets: noise of counts and centres × .9",
        "mechanisms/secret_evolution/clustering.py",
        "source.add_gaussian(exact, joint_scale(sigma))",
        "source.add_gaussian(exact, 0.9 * joint_scale(sigma))",
        (f"{DRAWN}::test_noise_of_counts_and_centres",),
    ),
    Mutant(
        "secrets: sensitivity of counts and sums is that of one",
        "mechanisms/secret_evolution/clustering.py",
        "product = math.sqrt(2) * validate",
        "product = validate",
        (f"{DRAWN}::test_noise_of_counts_and_centres",),
    ),
    Mutant(
        "secrets: σ × .9",
        "mechanisms/secret_evolution/inclusion.py",
        "max(map(_sigma, own), default=0.0) * _ABOVE",
        "max(map(_sigma, own), default=0.0) * 0.9",
        (f"{DRAWN}::test_noise_of_counts_and_centres",),
    ),
    Mutant(
        "secrets: clip × 1.1",
        "mechanisms/secret_evolution/clustering.py",
        "in_ball(vectors, radius) * _UNITS",
        "in_ball(vectors, radius) * 1.1 * _UNITS",
        (f"{DRAWN}::test_noise_of_counts_and_centres",),
    ),
    Mutant(
        "secrets: drawn probabilities + 5 %",
        "mechanisms/secret_evolution/clustering.py",
        "source.bernoulli(chances)",
        "source.bernoulli(np.minimum(1.0, 1.05 * chances))",
        (f"{DRAWN}::test_sample_of_records_with_secrets",),
    ),
    Mutant(
        "secrets: all records are drawn",
        "mechanisms/secret_evolution/clustering.py",
        "source.bernoulli(chances)",
        "chances > 0",
        (f"{DRAWN}::test_sample_of_records_with_secrets",),
    ),
    Mutant(
        "secrets: weights are ignored",
        "mechanisms/secret_evolution/clustering.py",
        'rounded_weights(chances) if inclusion == "weights"',
        'chances > 0 if inclusion == "weights"',
        (f"{WEIGHTS}::test_weighted_sums_are_those_of_fractions",),
    ),
    Mutant(
        "secrets: weighted offsets are rounded down",
        "mechanisms/secret_evolution/clustering.py",
        "np.where(products < 0, -(-products >> WEIGHT_BITS), products >> WEIGHT_BITS)",
        "products >> WEIGHT_BITS",
        (f"{WEIGHTS}::test_weighted_sums_are_those_of_fractions",),
    ),
    Mutant(
        "secrets: the secret with the smallest sum of weights decides",
        "mechanisms/secret_evolution/inclusion.py",
        "float(sums[incidence.group == group].max(initial=0.0))",
        "float(sums[incidence.group == group].min(initial=1e18))",
        (f"{WEIGHTS}::test_the_noise_is_that_of_the_secret_that_spends_most",),
    ),
    Mutant(
        "secrets: noise of weights is charged as twice as much",
        "accounting/secret_protection/groups.py",
        "sigma / length, -math.inf)), (0.0, 1.0), remainder)",
        "2 * sigma / length, -math.inf)), (0.0, 1.0), remainder)",
        (f"{WEIGHTS}::test_r_is_that_of_a_quadrature",),
    ),
    Mutant(
        "vectors: noise × .9",
        "mechanisms/dataset_vectors/generator.py",
        "release.with_noise(exact, scale, self.source)",
        "release.with_noise(exact, 0.9 * scale, self.source)",
        (f"{DRAWN}::test_noise_of_vectors",),
    ),
    Mutant(
        "vectors: noise of one block",
        "mechanisms/dataset_vectors/generator.py",
        "            len(self.blocks),\n            mechanism.adjacency,",
        "            1,\n            mechanism.adjacency,",
        (f"{DRAWN}::test_noise_of_vectors",),
    ),
    Mutant(
        "vectors: sensitivity of a replaced record halved",
        "mechanisms/dataset_vectors/release.py",
        "steps = 1 if as_published else sum_sensitivity(adjacency)",
        "steps = 1",
        (f"{DRAWN}::test_noise_of_vectors",),
    ),
    Mutant(
        "vectors: clip × 1.1",
        "mechanisms/dataset_vectors/release.py",
        "np.asarray(clips, dtype=np.float64)[:, None], RADIUS)",
        "np.asarray(clips, dtype=np.float64)[:, None], 11 * RADIUS // 10)",
        (f"{DRAWN}::test_noise_of_vectors",),
    ),
    Mutant(
        "vectors: noise of votes × .9",
        "mechanisms/dataset_vectors/generator.py",
        "scale = self.mechanism.votes_scale",
        "scale = 0.9 * self.mechanism.votes_scale",
        (f"{DRAWN}::test_votes_of_dataset_vectors",),
    ),
    Mutant(
        "vectors: sensitivity of votes of a replaced record",
        "mechanisms/dataset_vectors/generator.py",
        "self.shots_noise_multiplier * histogram_sensitivity(self.adjacency)",
        "self.shots_noise_multiplier",
        (f"{DRAWN}::test_votes_of_dataset_vectors",),
    ),
    Mutant(
        "vectors: the last records are drawn less often",
        "mechanisms/dataset_vectors/release.py",
        "source.below(records - index)",
        "source.below(max(1, records - index - 1))",
        (f"{DRAWN}::test_sample_of_dataset_vectors",),
    ),
    Mutant(
        "vectors: a careless shuffle",
        "mechanisms/dataset_vectors/release.py",
        "other = index + source.below(records - index)",
        "other = source.below(records)",
        (f"{DRAWN}::test_sample_of_dataset_vectors",),
    ),
    Mutant(
        "vectors: one more record is drawn than is charged",
        "mechanisms/dataset_vectors/generator.py",
        "release.drawn_sample(len(members), sample, self.source)",
        "release.drawn_sample(len(members), min(len(members), sample + 1), self.source)",
        (f"{DRAWN}::test_sample_of_dataset_vectors",),
    ),
    Mutant(
        "inference: temperature of a mean × .9",
        "mechanisms/private_inference/aggregation.py",
        "integer_bound * denominator, temperature * denominator, rows)",
        "integer_bound * denominator, 0.9 * temperature * denominator, rows)",
        (f"{DRAWN}::test_tokens_differ_by_the_range_that_is_charged",),
    ),
    Mutant(
        "inference: temperature of a median × .9",
        "mechanisms/private_inference/aggregation.py",
        "Aggregate(medians.median, clip, temperature, rows, medians)",
        "Aggregate(medians.median, clip, 0.9 * temperature, rows, medians)",
        (f"{DRAWN}::test_tokens_differ_by_the_range_that_is_charged",),
    ),
    Mutant(
        "inference: clip × 1.1",
        "mechanisms/private_inference/aggregation.py",
        "return LogitRows(_on_cpu(logits), clip)",
        "return LogitRows(_on_cpu(logits), 1.1 * clip)",
        (f"{DRAWN}::test_tokens_differ_by_the_range_that_is_charged",),
    ),
    Mutant(
        "inference: a replaced row is charged as one that goes",
        "mechanisms/private_inference/generator.py",
        "ranges = 4 if self.records_per_context == 1 else 8",
        "ranges = 2 if self.records_per_context == 1 else 8",
        (f"{DRAWN}::test_tokens_differ_by_the_range_that_is_charged",),
    ),
    Mutant(
        "inference: η of a mean × .9",
        "mechanisms/private_inference/generator.py",
        "BoundedRangeSelectionDpEvent((4 if self.replaces_rows else 2) * unit, self.rounding)",
        "BoundedRangeSelectionDpEvent((4 if self.replaces_rows else 1.8) * unit, self.rounding)",
        (f"{DRAWN}::test_tokens_differ_by_the_range_that_is_charged",),
    ),
    Mutant(
        "inference: η of a median halved",
        "mechanisms/private_inference/generator.py",
        "return ExPostSelectionDpEvent(ends * self.clip / self.temperature, self.rounding)",
        "return ExPostSelectionDpEvent(ends / 2 * self.clip / self.temperature, self.rounding)",
        (f"{DRAWN}::test_tokens_differ_by_the_range_that_is_charged",),
    ),
    Mutant(
        "inference: twice the clip of centred rows",
        "accounting/ex_post/clipped_rows.py",
        "np.clip(row - wide - shift[:, None], -limit, limit)",
        "np.clip(row - wide - shift[:, None], -2 * limit, 2 * limit)",
        (
            "tests/known_bugs/test_center_without_a_clip.py::"
            "test_replay_finds_the_range_of_a_difference_that_is_not_clipped",
        ),
    ),
    Mutant(
        "inference: private rows decide which tokens are kept",
        "mechanisms/private_inference/aggregation.py",
        "kept = likely_tokens(public, top_k, clip)",
        "kept = likely_tokens(public + clip_steps(_on_cpu(logits), 9.0).sum(axis=0, dtype=np.int64), top_k, clip)",
        (f"{TOP_K}::test_tokens_outside_are_never_drawn_whatever_the_records_are",),
    ),
    Mutant(
        "inference: tokens within one clip of the k-th largest are kept",
        "accounting/ex_post/clipped_rows.py",
        "steps >= kth - 2 * integer_clip(clip)",
        "steps >= kth - integer_clip(clip)",
        (f"{TOP_K}::test_the_likeliest_tokens_of_an_aggregate_are_kept",),
    ),
    Mutant(
        "inference: the column of a kept token is released in its place",
        "mechanisms/private_inference/aggregation.py",
        "return column if self.kept is None else int(self.kept[column])",
        "return column",
        (f"{TOP_K}::test_what_is_drawn_is_a_token_and_not_its_column",),
    ),
    Mutant(
        "inference: tokens of all slots are not charged",
        "mechanisms/private_inference/loop.py",
        "event = dp_event.NoOpDpEvent() if paid else self.event",
        "event = dp_event.NoOpDpEvent()",
        (f"{DRAWN}::test_tokens_differ_by_the_range_that_is_charged",),
    ),
    Mutant(
        "inference: noise of counts × .9",
        "mechanisms/primitives/counts.py",
        "source.discrete_laplace(exact.size, count_scale(epsilon, adjacency))",
        "source.discrete_laplace(exact.size, 0.9 * count_scale(epsilon, adjacency))",
        (
            f"{DRAWN}::test_noise_of_slot_counts",
            f"{DRAWN}::test_noise_of_cluster_counts",
        ),
    ),
    Mutant(
        "inference: charge of counts × .9",
        "mechanisms/primitives/counts.py",
        "rate = validate.positive(epsilon=epsilon) / count_sensitivity(adjacency)",
        "rate = 0.9 * validate.positive(epsilon=epsilon) / count_sensitivity(adjacency)",
        (f"{DRAWN}::test_noise_of_cluster_counts",),
    ),
    Mutant(
        "inference: noise of slot counts is that of twice the ε",
        "mechanisms/private_inference/loop.py",
        "exact, epsilon=epsilon, adjacency=adjacency, source=self.source",
        "exact, epsilon=2 * epsilon, adjacency=adjacency, source=self.source",
        (f"{DRAWN}::test_noise_of_slot_counts",),
    ),
    Mutant(
        "entropy: Gaussian noise × .9",
        "mechanisms/primitives/randomness.py",
        "scale=scale)\n    return np.array(measurement(values.tolist()), dtype=np.float64)",
        "scale=0.9 * scale)\n    return np.array(measurement(values.tolist()), dtype=np.float64)",
        (f"{NOISE}::test_the_scale_of_gaussian_noise_is_the_one_asked_for",),
    ),
    Mutant(
        "entropy: discrete Laplace noise × .9",
        "mechanisms/primitives/randomness.py",
        'dp.l1_distance(T="i64"), scale=scale)',
        'dp.l1_distance(T="i64"), scale=0.9 * scale)',
        (f"{NOISE}::test_noise_is_discrete_laplace",),
    ),
    Mutant(
        "entropy: discrete Gaussian noise × .9",
        "mechanisms/primitives/randomness.py",
        "scale=scale)\n        return np.array(measurement([0] * size), dtype=np.int64)\n\n    def add_gaussian",
        "scale=0.9 * scale)\n        return np.array(measurement([0] * size), dtype=np.int64)\n\n    def add_gaussian",
        (f"{NOISE}::test_discrete_gaussian_noise_has_its_law",),
    ),
    Mutant(
        "entropy: draws are 5 % more likely",
        "mechanisms/primitives/randomness.py",
        "np.floor(np.ldexp(np.where(always, 0.0, chances), 64))",
        "np.floor(np.ldexp(np.where(always, 0.0, np.minimum(0.99, 1.05 * chances)), 64))",
        (
            f"{NOISE}::test_draws_have_their_probabilities",
            f"{NOISE}::test_a_draw_is_at_most_as_likely_as_asked_for",
        ),
    ),
    Mutant(
        "entropy: whole numbers leave out the last twentieth",
        "mechanisms/primitives/randomness.py",
        "return secrets.randbelow(bound)",
        "return secrets.randbelow(max(1, bound - bound // 20))",
        ("tests/mechanisms/primitives/test_selection.py::test_draws_follow_the_softmax",),
    ),
    Mutant(
        "inference: realised costs × .95",
        "mechanisms/private_inference/loop.py",
        'value["costs"] = [list(cost) for reply',
        'value["costs"] = [[0.95 * one for one in cost] for reply',
        (
            "tests/mechanisms/private_inference/test_neighbours.py::test_realised_cost_of_medians_bounds_every_neighbour",
        ),
    ),
    Mutant(
        "entropy: normal noise × .9",
        "mechanisms/primitives/randomness.py",
        "return np.concatenate(pieces)\n\n    def bernoulli",
        "return (0.9 * np.concatenate(pieces)).astype(np.int64)\n\n    def bernoulli",
        ("tests/mechanisms/primitives/test_rounded_normal.py",),
    ),
    Mutant(
        "ledger: equal charges count once",
        "accounting/ledger/chain.py",
        "self._found[text] = (charge, count + 1)",
        "self._found[text] = (charge, 1)",
        (f"{DRAWN}::test_batches_of_fine_tuning",),
    ),
    Mutant(
        "ledger: a step is charged after it is drawn",
        "mechanisms/primitives/charged.py",
        "        run.step(charge=charge)\n        known = _settled(run, charge.key, draw())",
        "        value = draw()\n        run.step(charge=charge)\n        known = _settled(run, charge.key, value)",
        ("tests/mechanisms/aug_pe/test_aug_pe.py::test_votes_are_charged_before_they_get_noise",),
    ),
)
"""What generators draw, and what they charge."""

ACCOUNTANTS = (
    Mutant(
        "lattice: η of the pair of a selection × .95",
        "accounting/lattice/pairs.py",
        "components.bounded_range(eta) if eta",
        "components.bounded_range(0.95 * eta) if eta",
        (f"{BOUNDS}::test_one_selection_may_lose_its_whole_range[lattice]",),
    ),
    Mutant(
        "lattice: η of a selection × .95",
        "accounting/lattice/accountant.py",
        "(Fraction(event.eta) + 4 * Fraction(event.rounding))",
        "(Fraction(19, 20) * Fraction(event.eta) + 4 * Fraction(event.rounding))",
        (f"{BOUNDS}::test_one_selection_may_lose_its_whole_range[lattice]",),
    ),
    Mutant(
        "lattice: a Gaussian under replace_one moves by 1",
        "accounting/lattice/accountant.py",
        'noise(event.noise_multiplier, "noise_multiplier"), float(accountant.reach))\n\n\ndef _laplace',
        'noise(event.noise_multiplier, "noise_multiplier"), 1.0)\n\n\ndef _laplace',
        (f"{BOUND}[lattice-Gaussian noise-replace_one]",),
    ),
    Mutant(
        "lattice: a sum of lognormals is put on its nearest point, not split",
        "accounting/lattice/allocation.py",
        "        upper = both * share\n",
        "        upper = both * (share > 0.5)\n",
        ("tests/accounting/lattice/test_allocation.py::test_sums_against_all_pairs",),
    ),
    Mutant(
        "lattice: of k of t steps each block has all t",
        "accounting/lattice/accountant.py",
        "    size, longer = divmod(steps, selected)\n",
        "    size, longer = steps, 0\n",
        ("tests/accounting/lattice/test_allocation.py::test_published_numbers",),
    ),
    Mutant(
        "lattice: of a group all records are drawn together",
        "accounting/lattice/accountant.py",
        "drawn]\n    return DominatingPair.gaussian_mixture(_binomial(size, rate),",
        "(0, size)]\n    return DominatingPair.gaussian_mixture([1 - rate, rate],",
        ("tests/accounting/lattice/test_groups.py::test_alike_records_attain_it",),
    ),
    Mutant(
        "lattice: a chain grows δ by the number of its steps only",
        "accounting/lattice/chains.py",
        "grown = deltas_of_group(epsilons, known, size)",
        "grown = size * known",
        ("tests/accounting/lattice/test_groups.py::test_a_chain_is_no_less_than_what_some_chain_attains",),
    ),
    Mutant(
        "lattice: a record of a sample of fixed size takes nobody's place",
        "accounting/lattice/accountant.py",
        "    exchange = Lattice(Adjacency.REPLACE_ONE)\n",
        "    exchange = Lattice(Adjacency.ADD_REMOVE)\n",
        (f"{BOUND}[lattice-Gaussian on a sample without replacement-replace_one]",),
    ),
    Mutant(
        "lattice: draws with replacement move a sum by one record each",
        "accounting/lattice/accountant.py",
        "DominatingPair.gaussian(1.0, 2 * mu * times)",
        "DominatingPair.gaussian(1.0, mu * times)",
        (f"{BOUND}[lattice-Gaussian on a sample with replacement-replace_one]",),
    ),
    Mutant(
        "lattice: permute-and-flip costs a tenth less",
        "accounting/lattice/accountant.py",
        'DominatingPair.laplace(1.0, noise(event.epsilon, "epsilon")',
        'DominatingPair.laplace(1.0, 0.9 * noise(event.epsilon, "epsilon")',
        (f"{BOUND}[lattice-permute-and-flip-add_remove]",),
    ),
    Mutant(
        "lattice: of a round on one sample only the first mechanism counts",
        "accounting/lattice/sampling.py",
        'law = part.remove if single else upper_product(laws_of(composition, "remove"))',
        'law = part.remove if single else upper_product(laws_of(composition, "remove")[:1])',
        ("tests/accounting/lattice/test_sampled_rounds.py::test_one_round_is_the_product_then_the_mixture[0.3]",),
    ),
    Mutant(
        "lattice: of a sample only the addition counts",
        "accounting/lattice/sampling.py",
        "    tight, alone = single and part.tight and part.below is None, single and part.tight_alone\n",
        "    tight, alone, remove = single and part.tight, single and part.tight_alone, add\n",
        (f"{BOUND}[lattice-Laplace on a Poisson sample-add_remove]",),
    ),
    Mutant(
        "lattice: counts are one less",
        "accounting/lattice/pairs.py",
        "[tuple((part, n * count) for part, n in each) for each in self.alternatives]",
        "[tuple((part, n * max(1, count - 1)) for part, n in each) for each in self.alternatives]",
        (f"{BOUND}[lattice-Laplace noise-add_remove]",),
    ),
    Mutant(
        "lattice: lower ends are 5 % too high",
        "accounting/lattice/accountant.py",
        "return Interval(min(result.lower, upper), upper)",
        "return Interval(1.05 * result.lower, 1.05 * max(result.lower, upper))",
        (f"{BOUND}[lattice-randomised response-replace_one]",),
    ),
    Mutant(
        "basic: a count is dropped",
        "accounting/accountants/basic.py",
        "        return cost * count\n",
        "        return cost\n",
        (f"{BOUND}[basic-Laplace noise-add_remove]",),
    ),
    Mutant(
        "basic: a group is one unit",
        "accounting/accountants/basic.py",
        "formulas.up(self.cost * self.unit.size)",
        "formulas.up(self.cost)",
        (f"{BOUND}[basic-discrete Laplace noise-add_remove]",),
    ),
    Mutant(
        "advanced: the probability of a loss is too small",
        "accounting/accountants/advanced.py",
        "    return min(1.0, total * (1 + (masses.size + 32) * _UNIT))",
        "    return min(1.0, 0.95 * total)",
        (f"{BOUND}[advanced-Laplace noise-add_remove]",),
    ),
    Mutant(
        "zcdp: a Gaussian under replace_one costs twice, not four times",
        "accounting/accountants/zcdp.py",
        "accountant.scale**2 / (2 * Fraction(multiplier) ** 2)",
        "accountant.scale / (2 * Fraction(multiplier) ** 2)",
        (f"{BOUND}[zcdp-Gaussian noise-replace_one]",),
    ),
    Mutant(
        "zcdp: ε of a ρ × .95",
        "accounting/accountants/zcdp.py",
        "self._bound(formulas.epsilon_from_zcdp(rho, delta, xi),",
        "self._bound(0.95 * formulas.epsilon_from_zcdp(rho, delta, xi),",
        (f"{BOUND}[zcdp-zCDP-add_remove]",),
    ),
    Mutant(
        "zcdp: ξ is dropped",
        "accounting/accountants/zcdp.py",
        'Fraction(noise(event.xi, "xi"))\n',
        'Fraction(0) * Fraction(noise(event.xi, "xi"))\n',
        (f"{BOUND}[zcdp-approximate zCDP-add_remove]",),
    ),
    Mutant(
        "a tree of n steps has ⌈log₂ n⌉ levels",
        "accounting/events.py",
        "for count in counts).bit_length()",
        "for count in counts).bit_length() - 1",
        ("tests/accounting/matrices/test_trees.py::test_the_height_of_a_tree_is_that_of_its_complete_nodes",),
    ),
    Mutant(
        "trees: a record of two epochs is in no node twice",
        "accounting/matrices/trees.py",
        "return count * count + max(",
        "return count + max(",
        ("tests/accounting/matrices/test_trees.py::test_every_way_to_take_part_once_an_epoch",),
    ),
    Mutant(
        "sensitivities: negative products of columns cancel positive ones",
        "accounting/matrices/sensitivities.py",
        "(np.abs(matrix.T @ matrix) + error * most)",
        "(np.maximum(matrix.T @ matrix, 0.0) + error * most)",
        ("tests/accounting/matrices/test_sensitivities.py::test_every_set_of_steps_and_every_sign[all sets]",),
    ),
    Mutant(
        "sensitivities: the first steps cost most whatever the products are",
        "accounting/matrices/sensitivities.py",
        "    full = np.maximum(above, above.T)\n",
        "    full = weights\n",
        ("tests/accounting/matrices/test_sensitivities.py::test_every_set_of_steps_and_every_sign[bounds alone]",),
    ),
    Mutant(
        "sensitivities: a bound counts as exact",
        "accounting/matrices/sensitivities.py",
        "return self.lower >= self.value * (1 - EXACT)",
        "return self.lower >= self.value * 0.5",
        ("tests/accounting/matrices/test_sensitivities.py::test_vectors_may_cost_more_than_signs",),
    ),
    Mutant(
        "gdp: μ adds up by .95",
        "accounting/accountants/gdp.py",
        "squared = self.cost * self.unit.size**2",
        "squared = self.cost * self.unit.size**2 * Fraction(9, 10)",
        (f"{BOUND}[gdp-Gaussian noise-add_remove]",),
    ),
    Mutant(
        "rdp: a composition × .95",
        "accounting/accountants/rdp.py",
        "for cost in costs], axis=0) * (1 + 2 * len(costs) * _UNIT)",
        "for cost in costs], axis=0) * 0.95",
        (f"{BOUND}[rdp-composition-add_remove]",),
    ),
    Mutant(
        "rdp: a count × .95",
        "accounting/accountants/rdp.py",
        "cost.divergence * float(count) * (1 + 4 * _UNIT)",
        "cost.divergence * float(count) * 0.95",
        (f"{BOUND}[rdp-Gaussian noise-add_remove]",),
    ),
    Mutant(
        "rdp: ε of a divergence without its δ",
        "accounting/accountants/rdp.py",
        "values = formulas.epsilon_from_rdp(self.orders, self.cost.divergence, delta)",
        "values = formulas.epsilon_from_rdp(self.orders, self.cost.divergence, delta**0.9)",
        (f"{BOUND}[rdp-Gaussian noise-add_remove]",),
    ),
    Mutant(
        "rdp: the rate of a sample × .95",
        "accounting/accountants/rdp.py",
        "k * math.log(rate)",
        "k * math.log(0.95 * rate)",
        (f"{BOUND}[rdp-Gaussian on a Poisson sample-add_remove]",),
    ),
    Mutant(
        "pld: Laplace noise under replace_one moves by 1",
        "accounting/accountants/pld.py",
        "return pld.from_laplace_mechanism(event.noise_multiplier, sensitivity=scale, **common)",
        "return pld.from_laplace_mechanism(event.noise_multiplier, sensitivity=1, **common)",
        (f"{BOUND}[pld-Laplace noise-replace_one]",),
    ),
    Mutant(
        "pld: a count is dropped",
        "accounting/accountants/pld.py",
        "_single(event, adjacency).self_compose(count)",
        "_single(event, adjacency)",
        (f"{BOUND}[pld-Laplace noise-replace_one]",),
    ),
    Mutant(
        "prv: noise under replace_one is not halved",
        "accounting/accountants/prv.py",
        "event.noise_multiplier / scale)",
        "event.noise_multiplier)",
        (f"{BOUND}[prv-Gaussian noise-replace_one]",),
    ),
    Mutant(
        "prv: ε × .95",
        "accounting/accountants/prv.py",
        "EPSILON_ERROR)[2])",
        "EPSILON_ERROR)[2]) * 0.95",
        (f"{BOUND}[prv-Gaussian noise-replace_one]",),
    ),
    Mutant(
        "secret_protection: only the first group counts",
        "accounting/secret_protection/accountant.py",
        'self._worst([group.blowup(p) for group in self._groups], "r", at=p)',
        'self._worst([group.blowup(p) for group in self._groups[:1]], "r", at=p)',
        (f"{BOUND}[secret_protection-sum in which secrets of several budgets may occur-secret]",),
    ),
    Mutant(
        "secret_protection: counts are dropped",
        "accounting/secret_protection/accountant.py",
        "Counter({event: count * times for event, times in cost.items()})",
        "Counter({event: times for event, times in cost.items()})",
        (f"{BOUND}[secret_protection-sum in which a secret may occur-secret]",),
    ),
    Mutant(
        "ex_post: a unit never moves",
        "accounting/ex_post/accountant.py",
        "return max(worst, *pairs)",
        "return worst",
        (f"{BOUNDS}::test_an_ex_post_epsilon_bounds_the_run",),
    ),
    Mutant(
        "ex_post: the other noise is forgotten",
        "accounting/ex_post/accountant.py",
        "self._worst(self._realised) + up(others)",
        "self._worst(self._realised)",
        (f"{BOUNDS}::test_an_ex_post_epsilon_bounds_the_run",),
    ),
    Mutant(
        "ex_post: γ* is the cost of a row that leaves",
        "accounting/ex_post/costs.py",
        "return np.maximum(self.u_minus, self.u_plus)",
        "return self.u_minus",
        (EX_POST,),
    ),
    Mutant(
        "ex_post: γ* of a row that enters × .95",
        "accounting/ex_post/medians.py",
        "max(highest - base, 0.0) + extra,",
        "0.95 * max(highest - base, 0.0) + extra,",
        (f"{EX_POST}::test_costs_are_the_worst_neighbour",),
    ),
    Mutant(
        "blow-up of a curve × .95",
        "accounting/accountants/base.py",
        "float((np.exp(epsilons) * p + deltas).min()) * (1 + 1e-14)",
        "float((np.exp(epsilons) * p + deltas).min()) * 0.95",
        (f"{BOUND}[basic-nothing-add_remove]",),
    ),
    Mutant(
        "lattice: blow-up of a Gaussian at μ × .95",
        "accounting/lattice/gaussian_curve.py",
        "    gap += 16 * UNIT * (abs(quantile) + mu)\n",
        "    mu *= 0.95\n    gap += 16 * UNIT * (abs(quantile) + mu)\n",
        (f"{BOUND}[lattice-Gaussian noise-add_remove]",),
    ),
    Mutant(
        "secret_protection: blow-up of a mixture × .95",
        "accounting/secret_protection/noise.py",
        "return lower.reshape(noises.shape), upper.reshape(noises.shape)",
        "return 0.95 * lower.reshape(noises.shape), 0.95 * upper.reshape(noises.shape)",
        ("tests/accounting/secret_protection/test_secret_protection.py",),
    ),
    Mutant(
        "disjoint parts: only one counts where a unit moves",
        "accounting/accountants/base.py",
        "1 if single else min(2, len(costs))",
        "1",
        (f"{BOUND}[basic-disjoint parts-replace_one]",),
    ),
    Mutant(
        "choices: one part of a claim is enough",
        "generators/choices.py",
        "all(part.met for part in results)",
        "any(part.met for part in results)",
        (f"{CHOICES}::test_all_parts_of_a_claim_must_hold",),
    ),
    Mutant(
        "choices: a hundredth more than the target is offered",
        "generators/choices.py",
        'results.append(_Decided(verdict.name == "SUPPORTED", bound, excess))',
        "results.append(_Decided(excess < 0.01, bound, excess - 0.01))",
        (f"{CHOICES}::test_noise_of_votes_is_that_of_one_gaussian",),
    ),
)
"""What accountants answer."""

AUDITS = (
    Mutant(
        "one run: β is doubled",
        "audits/statistics/one_run.py",
        "    beta = 1 - confidence\n    pure",
        "    beta = 2 * (1 - confidence)\n    pure",
        ("tests/audits/statistics/test_one_run.py::test_agrees_with_brute_force",),
    ),
    Mutant(
        "echoes by a model: it is fine-tuned on the planted canaries, too",
        "auditing/canaries/echo_scores.py",
        "return likely(synthetic, 0), likely(",
        "return likely([*synthetic, *(canary.text for canary in planted)], 0), likely(",
        ("tests/auditing/canaries/test_echo_scores.py::test_scores_look_at_no_coin",),
    ),
    Mutant(
        "echoes by a model: likelier endings stand first",
        "attacks/canaries/continuations.py",
        "for index in rng.permutation(count)]",
        "for index in range(count)]",
        ("tests/attacks/canaries/test_continuations.py::test_canaries_are_exchangeable",),
    ),
    Mutant(
        "one run in a Gaussian model: the next order statistic",
        "audits/statistics/one_run_gaussian.py",
        "above = special.betainc(r + 1, m - r, _beyond(t, mu))",
        "above = special.betainc(r + 2, m - r, _beyond(t, mu))",
        ("tests/audits/statistics/test_one_run_gaussian.py::test_the_p_value_is_that_of_a_quadrature_and_never_below",),
    ),
    Mutant(
        "one run in a Gaussian model: cells take the value at their lower end",
        "audits/statistics/one_run_gaussian.py",
        "steps = np.diff(np.append(right, 1.0))",
        "steps = np.diff(np.append(0.0, right))",
        ("tests/audits/statistics/test_one_run_gaussian.py::test_the_p_value_is_that_of_a_quadrature_and_never_below",),
    ),
    Mutant(
        "released data: each of k attacks at confidence 1 − β",
        "auditing/released/run.py",
        "each = 1 - (1 - settings.confidence) / len(hits)",
        "each = settings.confidence",
        ("tests/auditing/released/test_audit_released.py::test_all_intervals_of_an_audit_hold_jointly",),
    ),
    Mutant(
        "released data: the rates beside an attack are not paid for",
        "audits/games/released_data.py",
        "share = (1 - confidence) / (2 + len(result.beside))",
        "share = (1 - confidence) / 2",
        ("tests/audits/games/test_released_data.py::test_all_intervals_of_an_attack_hold_jointly",),
    ),
    Mutant(
        "summary: audits whose errors do not add up count as they were declared",
        "app/jobs/audit_summary.py",
        "return tuple(1 - error * asked / total for error in errors)",
        "return tuple(1 - error for error in errors)",
        ("tests/app/jobs/test_audit_summary.py::test_audits_that_do_not_add_up_count_as_if_less_had_been_asked",),
    ),
    Mutant(
        "linkability: both parties break ties alike",
        "attacks/released/linkability.py",
        "order = rng.permutation(np.sort(distinct))",
        "order = np.sort(distinct)",
        ("tests/attacks/released/test_linkability.py::test_ties_link_by_chance_only",),
    ),
    Mutant(
        "Clopper and Pearson: β is doubled",
        "audits/statistics/binomial.py",
        "limit = special.betaincinv(np.maximum(hits, 1), trials - hits + 1.0, tail)",
        "limit = special.betaincinv(np.maximum(hits, 1), trials - hits + 1.0, min(0.5, 2 * tail))",
        ("tests/audits/statistics/test_binomial.py",),
    ),
    Mutant(
        "audit of a library: queries are compared with themselves",
        "auditing/mechanism/run.py",
        "self._queries.append(query)",
        "self._queries.append(0 * query)",
        ("tests/auditing/mechanism/test_mechanism_audit.py::test_a_fault_is_found_and_named",),
    ),
    Mutant(
        "predicates that do not single out a synthetic row are tried on private ones",
        "attacks/released/singling_out.py",
        "_all_hold(predicate, synthetic).sum() == 1",
        "_all_hold(predicate, synthetic).sum() >= 1",
        ("tests/attacks/released/test_tables.py::test_predicates_of_several_columns_single_out_a_synthetic_row",),
    ),
    Mutant(
        "audit of a library: noise alone is drawn anew in a replay",
        "auditing/mechanism/run.py",
        "noise, released = (past - query).reshape(shape)[()], past",
        "noise, released = drawing(*args, **kwargs), past",
        (
            "tests/auditing/mechanism/test_mechanism_audit.py::test_a_replay_has_the_same_releases_where_a_draw_returns_noise_alone",
        ),
    ),
    Mutant(
        "audit of a library: queries are not divided by the scale that an argument holds",
        "auditing/mechanism/run.py",
        "return query / scales, noise / scales",
        "return query, noise / scales",
        ("tests/auditing/mechanism/test_mechanism_audit.py::test_what_holds_is_not_refuted",),
    ),
    Mutant(
        "audit of a library: a choice that is released is made anew in a replay",
        "auditing/mechanism/run.py",
        "known = self._past is not None and number < len(self._past)",
        "known = self._past is not None and number < 0",
        ("tests/auditing/mechanism/test_mechanism_audit.py::test_a_choice_that_is_released_is_replayed",),
    ),
    Mutant(
        "bets on scores: δ is not paid for",
        "audits/statistics/score_bets.py",
        "paid = np.log1p(shrunk * delta *",
        "paid = np.log1p(0 * shrunk * delta *",
        ("tests/audits/statistics/test_score_bets.py::test_no_pair_of_laws_gains_on_average",),
    ),
    Mutant(
        "bets on scores: a run on D′ gains too much",
        "audits/statistics/score_bets.py",
        "np.log1p(shrunk * h - g) - paid",
        "np.log1p(h - g) - paid",
        ("tests/audits/statistics/test_score_bets.py::test_no_pair_of_laws_gains_on_average",),
    ),
    Mutant(
        "bets on scores: estimates are made from the outputs that are bet on",
        "audits/games/distinguishing_bets.py",
        "fitted_likelihood_ratios(on_d[:start], on_d_prime[:start], score)",
        "fitted_likelihood_ratios(on_d[:end], on_d_prime[:end], score)",
        ("tests/audits/statistics/test_score_bets.py::test_estimates_are_made_before_the_outputs_are_seen",),
    ),
    Mutant(
        "many runs: what a round showed is among the runs from which it is bet on",
        "audits/games/many_runs_rounds.py",
        "factors = log_factors(",
        "self._hits.add(new); factors = log_factors(",
        ("tests/audits/games/test_many_runs.py::test_the_bound_is_a_replay_of_the_bets_that_are_recorded",),
    ),
    Mutant(
        "many runs: bets are chosen when the round is counted",
        "audits/games/many_runs_rounds.py",
        "self._rounds[tested.name] += 1",
        "self._rounds[tested.name] += 1; self._next_look = 0",
        ("tests/audits/games/test_many_runs.py::test_looks_get_rarer_so_that_long_audits_are_not_slow",),
    ),
    Mutant(
        "many runs: shares of the wealth that are not bet are won",
        "audits/games/event_bets.py",
        "rest -= bet.share",
        "rest -= 0.9 * bet.share",
        ("tests/audits/games/test_event_bets.py::test_shares_of_the_wealth_gain_nothing_on_average",),
    ),
    Mutant(
        "many runs: an event that was tried beside many is expected as one that was named",
        "audits/games/event_bets.py",
        "_OTHER_ODDS / len(names) / len(between)",
        "_OTHER_ODDS",
        ("tests/audits/games/test_event_bets.py::test_what_was_expected_needs_fewer_runs_than_one_of_many_features",),
    ),
    Mutant(
        "many runs: bets on values gain more than an event could",
        "audits/statistics/sequential.py",
        "self.wealth.bet(np.minimum(factors, self.wealth.most(self.earlier, 1)))",
        "self.wealth.bet(factors)",
        ("tests/audits/statistics/test_sequential.py::test_other_bets_gain_no_more_than_the_ceiling",),
    ),
    Mutant(
        "cause: what few runs make by accident is tested",
        "audits/games/plainest_event.py",
        "features * by_chance(candidate.hits, runs) <= CHANCE",
        "by_chance(candidate.hits, runs) <= 1.0",
        (PLAINEST,),
    ),
    Mutant(
        "cause: a plainer event that is worse is tested",
        "audits/games/plainest_event.py",
        "if estimate(candidate) >= least",
        "if estimate(candidate) >= least - 1.0",
        (PLAINEST,),
    ),
    Mutant(
        "cause: one run that equals the data makes a copy",
        "audits/games/plainest_event.py",
        "if not all(math.isclose(",
        "if not any(math.isclose(",
        (PLAINEST,),
    ),
    Mutant(
        "an absent row is in the data",
        "attacks/black_box/absent_values.py",
        "rows = tuple({**target, name: other} for name, other in others.items())",
        "rows = tuple({**target, name: target[name]} for name, other in others.items())",
        (f"{WORST}::test_pairs_of_absence_lack_what_independent_columns_make",),
    ),
    Mutant(
        "records of an absent pair have two values of the target",
        "attacks/black_box/absent_values.py",
        '_absent_combination(sample, "absent_pair", 1)',
        '_absent_combination(sample, "absent_pair", 2)',
        (f"{WORST}::test_pairs_of_absence_lack_what_independent_columns_make",),
    ),
    Mutant(
        "the order of rows is looked at in each piece alone",
        "attacks/black_box/row_order.py",
        "if name in self._before else list(values)",
        "if not name else list(values)",
        ("tests/attacks/black_box/test_output_features.py::test_the_order_of_rows_shows",),
    ),
    Mutant(
        "a pair of a ladder differs in one record too many",
        "attacks/black_box/probes.py",
        "self.rows[self.filler : self.filler + level + self.copies]",
        "self.rows[self.filler : self.filler + level + self.copies + 1]",
        (f"{PROBES}::test_pairs_of_ladders_are_neighbours_with_so_many_planted_records",),
    ),
    Mutant(
        "an output beyond a planted group shows the group",
        "attacks/black_box/output_features.py",
        "(number <= numbers) & (numbers <= until)",
        "(number <= numbers) & (numbers <= math.inf)",
        (f"{PROBES}::test_the_features_of_a_probe_are_the_numbers_of_records_of_each_level",),
    ),
    Mutant(
        "the longest planted text is of the last level",
        "attacks/black_box/probes.py",
        "Mark(column.name, levels - index, (before + length) / 2)",
        "Mark(column.name, index + 1, (before + length) / 2)",
        (f"{PROBES}::test_lengths_that_leave_some_texts_out_are_moved_by_one_more",),
    ),
    Mutant(
        "a planted group has one record",
        "attacks/black_box/probes.py",
        'for _ in range(1 if own == "single" else level)',
        'for _ in range(level if own == "shared" else 1)',
        (f"{PROBES}::test_groups_that_are_published_from_some_size_on_are_events_of_their_pair",),
    ),
    Mutant(
        "a user's own data sets may differ in a record more than the unit has",
        "attacks/black_box/own_neighbors.py",
        "if more > unit.size:",
        "if more > unit.size + 1:",
        (f"{OWN_PAIR}::test_data_sets_are_neighbours_if_leaving_out_some_records_makes_one_the_other",),
    ),
    Mutant(
        "a user's own data sets may have one record exchanged too many",
        "attacks/black_box/own_neighbors.py",
        "if differ > unit.size:",
        "if differ > unit.size + 1:",
        (f"{OWN_PAIR}::test_exchanged_records_are_those_at_which_data_sets_differ",),
    ),
    Mutant(
        "records of a user's own pair are compared as text",
        "attacks/black_box/own_neighbors.py",
        "repr(list(row.values()))",
        "repr(list(map(str, row.values())))",
        (f"{OWN_PAIR}::test_cells_of_different_types_are_different",),
    ),
)
"""What audits show."""

FILES = (
    Mutant(
        "ledger: the hash of an entry is not verified",
        "accounting/ledger/chain.py",
        "if row.hash != row.computed_hash():",
        "if False:",
        ("tests/accounting/ledger/test_ledger_chain.py::test_a_changed_byte_anywhere_is_found",),
    ),
    Mutant(
        "ledger: what follows the end of a run is not verified",
        "accounting/ledger/chain.py",
        '            raise LedgerError(f"{row.kind} in a run that was finished")',
        "            return",
        ("tests/accounting/ledger/test_ledger_chain.py",),
    ),
    Mutant(
        "ledger: a charge beyond the plan is verified",
        "accounting/ledger/chain.py",
        '    run.allowance.take(charge, body["key"])\n',
        "",
        ("tests/accounting/ledger/test_ledger_chain.py::test_a_well_chained_forgery_must_make_sense_too",),
    ),
    Mutant(
        "private/: what lies in an existing one stays open",
        "base/private_files.py",
        'for path in folder.rglob("*"):\n            with contextlib',
        "for path in ():\n            with contextlib",
        ("tests/base/test_private_folder.py::test_an_open_folder_is_closed_with_all_that_it_holds",),
    ),
)
"""What is kept of a run."""

MUTANTS = MECHANISMS + ACCOUNTANTS + AUDITS + FILES

_FINDER = '''
"""Imports the packages of this checkout in place of the installed ones."""
import sys
import tomllib
from importlib.util import spec_from_file_location
from pathlib import Path

ROOT = Path({root!r})
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in FOLDERS:
            return None
        folder = ROOT / FOLDERS[name]
        first = folder / "__init__.py"
        if not first.is_file():  # a folder of data alone
            return None
        return spec_from_file_location(name, first, submodule_search_locations=[str(folder)])


sys.meta_path.insert(0, Finder)
'''
_ASSERTED = re.compile(r"^E +(AssertionError|assert |Failed: DID NOT|.*Falsifying example)", re.MULTILINE)


class Copy:
    """A copy of what git knows or would add, with a module that makes Python import it.

    Args:
        folder: does not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self._first = folder / "first"
        self._first.mkdir(parents=True)
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        for name in sorted(set(listed.decode().split("\0")) - {""}):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        (self._first / "sitecustomize.py").write_text(_FINDER.format(root=str(self.root)))

    def check_imports(self, folders: Collection[str]) -> None:
        """Checks that a process imports the packages in these folders from the copy."""
        for package in sorted({"dpassay", *(f"dpassay.{folder}" for folder in folders if folder != "app")}):
            command = [sys.executable, "-c", f"import {package}; print({package}.__file__)"]
            done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=True)
            if not Path(done.stdout.strip()).is_relative_to(self.root):
                raise ImportError(f"{package} is imported from {done.stdout.strip()}, not from the copy {self.root}")

    def pytest(self, tests: Sequence[str], limit: float | None = SECONDS) -> tuple[int | None, str]:
        """Runs tests; exit code (None if it ran too long) and output."""
        own = f"--basetemp={self.root.parent / 'tmp'}"  # not shared with other runs, which clean up behind each other
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", own, *tests]
        mine = self._environment()
        try:
            done = subprocess.run(command, cwd=self.root, env=mine, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr

    def _environment(self) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV"))}
        return mine | {"PYTHONPATH": str(self._first), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}

    def survives(self, mutant: Mutant) -> str:
        """Why a mutant survives the tests that are named for it; empty if it is killed."""
        path = self.root / mutant.file
        clean = path.read_text()
        try:
            self._write(path, mutated(mutant, clean))
            code, said = self.pytest(mutant.tests)
        finally:
            self._write(path, clean)
        if code is None:
            return f"the tests did not end within {SECONDS} s"
        if code == 0:
            return "all tests passed"
        if code != 1 or not _ASSERTED.search(said):
            return f"no assertion failed, pytest ended with {code}:\n{said[-3000:]}"
        return ""

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Writes a module, and removes its bytecode: the time of a file may not tell two texts of one length apart."""
        path.write_text(text)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def mutated(mutant: Mutant, clean: str) -> str:
    """The text of a file with the fault.

    Raises:
        ValueError: if the text that it replaces does not occur exactly once.
    """
    if (count := clean.count(mutant.old)) != 1 or mutant.old == mutant.new:
        raise ValueError(f"{mutant.name}: its text occurs {count} times in {mutant.file}, not once; adapt the mutant")
    return clean.replace(mutant.old, mutant.new)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs mutants; 0 if all were killed."""
    parser = argparse.ArgumentParser(description="Puts known faults into a copy of the code; tests must fail.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run; by default all")
    parser.add_argument("--list", action="store_true", help="print the names")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(mutant.name for mutant in MUTANTS))
        return 0
    if unknown := set(given.names) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"there is no mutant {', '.join(sorted(unknown))}; --list prints the names")
    chosen = [mutant for mutant in MUTANTS if not given.names or mutant.name in given.names]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Copy(Path(folder).resolve() / str(number)) for number in range(min(JOBS, len(chosen)))]
        for copy in copies:
            copy.check_imports({mutant.file.partition("/")[0] for mutant in chosen})
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        code, said = copies[0].pytest(tests, limit=None)
        if code != 0:
            print(f"the tests do not pass without a fault:\n{said[-5000:]}")
            return 1
        print(f"{said.strip().splitlines()[-1]} without a fault", flush=True)
        with ThreadPoolExecutor(len(copies)) as threads:
            alive = sum(
                threads.map(lambda number: _run(copies[number], chosen[number :: len(copies)]), range(len(copies)))
            )
    print(f"{len(chosen) - alive} of {len(chosen)} mutants killed in {time.monotonic() - began:.0f} s")
    return 1 if alive else 0


def _run(copy: Copy, mutants: Sequence[Mutant]) -> int:
    """Runs mutants one after the other; the number that survive."""
    alive = 0
    for mutant in mutants:
        start = time.monotonic()
        why = copy.survives(mutant)
        alive += bool(why)
        verdict = f"SURVIVED, {why}" if why else "killed"
        print(f"{mutant.name}: {verdict}, {time.monotonic() - start:.0f} s", flush=True)
    return alive


if __name__ == "__main__":
    sys.exit(main())

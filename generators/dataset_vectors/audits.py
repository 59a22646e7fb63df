"""Audits of dataset vectors: two neighbours told apart by the release, and canaries found in vectors and texts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ledger.run_files import prepare
from dpassay.attacks.black_box.repetitions import repeat
from dpassay.attacks.canaries.reconstruction import PREFIX, Canaries, extract_keys
from dpassay.attacks.dataset_vectors.games import GAMES, ReleaseGame
from dpassay.attacks.dataset_vectors.membership import PROJECTION, REGRESSION, coin_scores
from dpassay.audits.games.distinguishing import distinguishing_audit
from dpassay.audits.games.membership_design import MembershipScores
from dpassay.audits.result import AuditResult, Rate, no_conclusion
from dpassay.base.arrays import Bools, Floats
from dpassay.base.errors import input_errors
from dpassay.data.records import Record, with_content_ids
from dpassay.generators.audits import kept, membership_of_canaries, named_audits
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.dataset_vectors.run import VectorsRun
from dpassay.generators.ledger_run import open_audit_run
from dpassay.mechanisms.dataset_vectors import release
from dpassay.mechanisms.dataset_vectors.differences import Differences
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors, DatasetVectorsResult
from dpassay.mechanisms.dataset_vectors.vectors import ReleasedVectors
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.evolution.loop import text_seed

PLAYED = 50_000
"""The number of games of the distinguishing audit on each side."""

CONTROL_GAMES = 1000
"""Likewise, without noise."""

CANARIES = 120
"""The number of coins of the membership audit."""

TEXTS = 128
"""The number of texts of each label that are searched for keys."""

PRINTED = "keys printed in texts"

CANARY_FILES = {"membership": "canaries.json", "positive control": "control-canaries.json"}
"""Name of a run of the membership audit → file of its coins."""

WORST = (
    "the claim is for any records and any public model, so that one record more, less or in place of another may "
    "change every block by all that the clip allows, and a vote"
)
"""What the distinguishing audit assumes. The claimed model may have no two such texts."""

INDEPENDENT = "noise is independent from coordinate to coordinate, so that games that share a release are, too"

_ROWS_WORK = 1e6  # records that are summed, with pairs by row; beyond it fewer games are played
_SAMPLED_WORK = 2e7  # likewise, draws of a sample
_MIN_GAMES = 1000


def audit(run: VectorsRun, claimed: BoundedGuarantee, confidence: float) -> list[AuditResult]:
    """The audits of a finished run that its claim names."""
    with input_errors("audits: "):
        return named_audits(run, claimed, confidence, {"distinguishing": distinguishing, "membership": membership})


def distinguishing(run: VectorsRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The distinguishing audit of the claimed mechanism, in the worst case of its guarantee.

    Args:
        run: the claimed run, of whose label with the fewest records a record is in question.
        claimed: the claim.
        folder: keeps the scores of games; private.
        confidence: of the bound.
    """
    blocks = len(run.result.blocks)
    game = ReleaseGame(run.mechanism, blocks, min(run.mechanism.sizes.values()))
    bare = without_noise(run.mechanism)
    control = ReleaseGame(bare, blocks, game.records)
    with run.settings.progress.stage("Telling neighbours apart") as step:
        total = 2 * (number_of_games(game) + CONTROL_GAMES)
        played = 0

        def sides(of: ReleaseGame, games: int, name: str) -> Iterator[Floats]:
            nonlocal played
            for on_d_prime in (False, True):
                before = played

                def some(index: int, _: np.random.SeedSequence, side: bool = on_d_prime) -> list[float]:
                    count = min(GAMES, games - index * GAMES)
                    return [float(score) for score in of.scores(count, on_d_prime=side)]

                def counted(done: int, _: int, before: int = before) -> None:
                    step(min(before + done * GAMES, total), total)

                settings = {"mechanism": repr(of.mechanism), "blocks": of.blocks, "records": of.records, "games": games}
                pieces = repeat(
                    some,
                    -(-games // GAMES),
                    seed=0,  # of nothing: the games have noise of the operating system's entropy
                    folder=folder / f"{name}-{int(on_d_prime)}",
                    progress=counted,
                    settings=settings,
                )
                played += games
                yield np.concatenate([np.array(piece) for piece in pieces])

        low, high = sides(control, CONTROL_GAMES, "control")
        on_d, on_d_prime = sides(game, number_of_games(game), "distinguishing")
    result = distinguishing_audit(
        list(on_d),
        list(on_d_prime),
        guarantee=claimed.guarantee,
        adjacency=run.adjacency,
        unit=run.unit,
        confidence=confidence,
        score=float,
    )
    bounds = tuple(
        dataclasses.replace(item, assumptions=(*item.assumptions, WORST, INDEPENDENT)) for item in result.bounds
    )
    passed = bool(low.max() < high.min())
    right = int((high > low.max()).sum())
    said = result.conclusion if passed else no_conclusion("without noise the two data sets are not told apart")
    audited = dataclasses.replace(
        result,
        attack=f"{result.attack}; the score is the log-likelihood ratio of all that is released",
        conclusion=said[0].upper() + said[1:],
        bounds=bounds if passed else (),
        controls=(Rate("runs without noise told apart", right, CONTROL_GAMES, confidence),),
        controls_passed=passed,
    )
    return [audited]


def without_noise(mechanism: DatasetVectors) -> DatasetVectors:
    """The mechanism without noise and without a secret sample, for controls; a public sample hides nobody."""
    sample = None if mechanism.variant == "sound" else mechanism.sample
    return dataclasses.replace(mechanism, noise_multiplier=0.0, shots_noise_multiplier=0.0, sample=sample)


def number_of_games(game: ReleaseGame) -> int:
    """The number of games on each side; it depends on public parameters alone."""
    most = math.inf
    if game.by_row:
        most = _ROWS_WORK / game.records
    elif game.rate < 1:
        most = _SAMPLED_WORK / (game.mechanism.sample or 1)
    return int(min(PLAYED, max(_MIN_GAMES, most)))


@dataclass(frozen=True, slots=True)
class KeyCoins:
    """Canaries of which fair coins choose.

    Attributes:
        keys: of each coin; whether it is 1 is `included`.
        others: the key that is in the data if a coin is 0; empty if then none is.
        included: shape (m,).
    """

    keys: tuple[str, ...]
    others: tuple[str, ...]
    included: Bools

    @classmethod
    def kept(cls, path: Path, count: int, adjacency: Adjacency, records: Iterable[Record]) -> KeyCoins:
        """The coins in a file, which is written first if it is missing; no key is that of a record of the claim."""

        def draw() -> dict[str, object]:
            taken = {key for record in records for key in extract_keys(record.text)}
            drawn = Canaries.draw(min(50_000, 2 * count + len(taken)), never=0)
            free = [key for key in drawn.keys if key not in taken]
            if len(free) < 2 * count:
                raise ValueError("membership: the records hold nearly all keys of five digits; leave this audit out")
            included = drawn.included[:count].tolist()
            return {"keys": free[:count], "others": free[count : 2 * count], "included": included}

        body = kept(path, draw)
        others = body["others"] if adjacency is Adjacency.REPLACE_ONE else []
        return cls(tuple(body["keys"]), tuple(others), np.array(body["included"], dtype=np.bool_))

    def records(self, labels: Sequence[str], included: Bools) -> list[Record]:
        """A record for each key that is in the data if these are the coins; its label depends on its place alone."""
        rows: list[tuple[str, str | None, str | None]] = []
        for index, coin in enumerate(included):
            key = self.keys[index] if coin else self.others[index] if self.others else None
            if key is not None:
                rows.append((PREFIX + key, labels[index % len(labels)] if labels else None, None))
        return with_content_ids(rows)


def membership(run: VectorsRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The membership audit: fair coins choose canaries, which are looked for in the vectors and in texts.

    Two runs of their own over the claim's data and canaries, each with its ledger and its coins: one with the claimed
    mechanism, and one without noise, the positive control. Under replace_one a coin chooses between two keys, under
    add_remove whether one is in the data.

    Args:
        run: the claimed run.
        claimed: the claim.
        folder: of the runs; private.
        confidence: of the bound.
    """
    prepare(folder, run.settings.anchor)
    bare = without_noise(run.mechanism)
    played = _play(run, run.mechanism, folder, "membership")
    control = _play(run, bare, folder, "positive control")
    return [membership_of_canaries(run, claimed.guarantee, played, control, confidence)]


def with_canaries(mechanism: DatasetVectors, coins: int) -> DatasetVectors:
    """The mechanism over that many canaries more, as many in each label as `KeyCoins.records` puts there."""
    added = coins if mechanism.adjacency is Adjacency.REPLACE_ONE else (coins + 1) // 2  # half of them are in the data
    labels = mechanism.labels
    sizes = tuple(size + len(range(index, added, len(labels))) for index, size in enumerate(mechanism.records_by_label))
    more = added if mechanism.pairing == "rows" else 0  # each row needs a negative
    return dataclasses.replace(
        mechanism, records=mechanism.records + added, records_by_label=sizes, negatives=mechanism.negatives + more
    )


def _play(run: VectorsRun, mechanism: DatasetVectors, folder: Path, name: str) -> MembershipScores:
    """A run over the claim's data and canaries, and the scores of its coins."""
    coins = KeyCoins.kept(folder / CANARY_FILES[name], CANARIES, run.adjacency, run.records)
    mechanism = with_canaries(mechanism, CANARIES)
    records = [*run.records, *coins.records(mechanism.labels, coins.included)]
    about = {"mechanism": repr(mechanism), "writer": repr(run.writer), "model": run.writer.model.fingerprint}
    with (
        run.settings.progress.stage(f"Attacking: {name}") as step,
        open_audit_run(run, folder, name, mechanism, about) as charged,
        Journal(folder / f"{name}.jsonl", about) as journal,
    ):
        result = mechanism.release(
            records, run.writer, charged, journal=journal, progress=step, executor=run.settings.executor
        )
    by_attack = _of_vectors(run, mechanism, result, coins)
    by_attack[PRINTED] = _of_texts(run, mechanism, result, coins)
    return MembershipScores(by_attack, coins.included)


def _of_vectors(
    run: VectorsRun, mechanism: DatasetVectors, result: DatasetVectorsResult, coins: KeyCoins
) -> dict[str, Floats]:
    """The scores of all coins by the released vectors."""
    writer, m = run.writer, len(coins.keys)
    prompts = {label: writer.prompt(label, result.shots[label], mechanism.shots) for label in mechanism.sizes}
    shape = mechanism.shape(writer, prompts.values())
    items, zeros = (coins.records(mechanism.labels, np.full(m, coin)) for coin in (True, False))
    scale = release.noise_scale(
        mechanism.noise_multiplier,
        len(result.blocks),
        mechanism.adjacency,
        as_published=mechanism.variant == "as_published",
    )
    scores = {attack: np.zeros(m) for attack in (REGRESSION, PROJECTION)}
    for label, prompt in prompts.items():
        outcome, clips = Differences(mechanism, writer, prompt, result.negatives[label], shape), result.clips[label]
        indices = [index for index, record in enumerate(items) if label in (None, record.label)]
        if not indices:
            continue
        own = [record for record in run.records if label in (None, record.label)]
        known, of_ones = _contributions(outcome, own, [items[index] for index in indices], clips)
        of_zeros = np.zeros_like(of_ones)
        if zeros:  # only pairs by row depend on the records before
            before = own if mechanism.pairing == "rows" else []
            _, of_zeros = _contributions(outcome, before, [zeros[index] for index in indices], clips)
        size = mechanism.sizes[label]
        rate = 1.0 if mechanism.sample is None else mechanism.sample / size  # of what is summed, on average
        unit = mechanism.divisor(label) / np.asarray(clips)[:, None]
        found_scores = coin_scores(
            result.means[label] * unit,
            rate * (known + of_zeros.sum(axis=0)),
            rate * (of_ones - of_zeros),
            scale / release.RADIUS,
        )
        for attack, values in found_scores.items():
            scores[attack][indices] = values
    return scores


def _contributions(
    result: Differences, own: Sequence[Record], added: Sequence[Record], clips: Sequence[float]
) -> tuple[Floats, Floats]:
    """What records add to a sum, in units of the clip.

    Returns:
        The sum over the claim's own records, shape (blocks, d), and what each added one adds, shape (m, blocks, d).
    """
    known, rest = np.zeros((len(clips), result.width)), []
    for index, difference in enumerate(result.of([*own, *added])):
        contribution = release.clipped(difference, clips) / release.RADIUS
        if index < len(own):
            known += contribution
        else:
            rest.append(contribution)
    return known, np.array(rest)


def _of_texts(run: VectorsRun, mechanism: DatasetVectors, result: DatasetVectorsResult, coins: KeyCoins) -> Floats:
    """1 for a coin whose key is printed in texts that begin as canaries do, −1 for one whose other key is."""
    writing, writer = run.claim.parameters.writing, run.writer
    vectors = ReleasedVectors.of(mechanism, result, writer, protected=False)
    begun = writer.model.encode(PREFIX)
    short = dataclasses.replace(writer, longest=min(writer.longest, len(writer.model.encode("00000")) + 2))
    printed: set[str] = set()
    with run.settings.progress.stage("Attacking: texts") as step:
        for number, label in enumerate(mechanism.sizes):
            prompt = writer.prompt(label, result.shots[label], mechanism.shots)
            added = vectors.steering(label, **writing.steering())
            seeds = [text_seed(mechanism.seed, label, f"canary/{index}", 0) for index in range(TEXTS)]
            texts = short.texts([*prompt, *begun], seeds, vectors=added, where=writing.inject)
            for index, (text, _) in enumerate(texts):
                printed.update(extract_keys(PREFIX + text))
                step(number * TEXTS + index + 1, len(mechanism.sizes) * TEXTS)
    others = coins.others or ("",) * len(coins.keys)
    return np.array(
        [float(key in printed) - float(other in printed) for key, other in zip(coins.keys, others, strict=True)]
    )

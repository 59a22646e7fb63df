"""`dpassay audit membership`: membership inference by signals of models, by a model, or by synthetic text."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpassay import __version__
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.auditing.alike import unlike_texts
from dpassay.auditing.membership.design import SIGNAL_ATTACKS, TEXT_ATTACKS, MembershipSettings
from dpassay.auditing.membership.files import Signals, check_disjoint, read_candidates, read_signals
from dpassay.audits.games.membership import membership_audit
from dpassay.audits.games.membership_design import MembershipDesign, MembershipScores
from dpassay.audits.result import AuditResult, refuted_where_concluded
from dpassay.audits.verdict import decide
from dpassay.base import defaults
from dpassay.base.arrays import Bools, Floats
from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_results import PRIVATE, synthetic_file, write
from dpassay.base.progress import Progress
from dpassay.data.chats import TEXTS, TextOptions

if TYPE_CHECKING:
    from dpassay.mechanisms.models.fine_tuning import Training


NAME = "membership-audit.json"
MAX_REFERENCES = 10_000


@dataclass(frozen=True, eq=False)
class MembershipAudit:
    """The result of a membership audit; private.

    Attributes:
        settings: of the audit.
        files: the inputs: for each role the path, and for signals of models the number of reference models.
        audit: areas under the curve, rates, and bounds on ε.
    """

    settings: MembershipSettings
    files: Mapping[str, str | int | None]
    audit: AuditResult

    @property
    def refuted(self) -> bool | None:
        """Whether the audit refutes the claimed ε; None if none is claimed, or there is no conclusion."""
        claim, unit, bounds = self.settings.claim, Unit.parse(self.settings.unit), self.audit.bounds
        if claim is None:
            return None
        verdict = decide(claim, adjacency=Adjacency.ADD_REMOVE, unit=unit, bounds=bounds)
        return refuted_where_concluded(verdict.name == "REFUTED", self.concluded)

    @property
    def concluded(self) -> bool:
        """Whether a conclusion is drawn."""
        return self.audit.concluded

    def to_json(self) -> dict[str, Any]:
        """The audit as plain JSON types."""
        settings = self.settings
        return {
            "schema": 1,
            "private": PRIVATE,
            "version": __version__,
            "kind": "membership",
            "files": dict(self.files),
            "unit": settings.unit,
            "coins": settings.coins,
            "confidence": settings.confidence,
            "seed": settings.seed,
            "claim": None if settings.epsilon is None else {"epsilon": settings.epsilon, "delta": settings.delta},
            "refuted": self.refuted,
            "audits": [self.audit.to_json()],
        }


def audit_membership(
    candidates: str | Path,
    *,
    synthetic: str | Path | None = None,
    model: str | Path | None = None,
    reference: str | Path | None = None,
    text: str = "text",
    synthetic_text: str = "text",
    attacks: Iterable[str] = (),
    guesses: Iterable[int] = (),
    side: str = "both",
    coins: bool = False,
    epsilon: float | None = None,
    delta: float = 0.0,
    confidence: float = defaults.CONFIDENCE,
    unit: str = "record",
    order: int = defaults.NGRAM_ORDER,
    neighbours: int = defaults.NEIGHBOURS,
    gamma: float = defaults.RMIA_GAMMA,
    a: float = defaults.RMIA_A,
    base: str = "builtin",
    references: int = 0,
    epochs: int = defaults.EPOCHS,
    batch_size: int = defaults.BATCH_SIZE,
    learning_rate: float = defaults.LEARNING_RATE,
    workers: int | None = None,
    cluster: str | None = None,
    device: str = "cpu",
    seed: int = 0,
    reading: TextOptions = TEXTS,
    output: str | Path | None = None,
    progress: Progress | None = None,
) -> MembershipAudit:
    """Infers which candidates were in the data: from synthetic text, from a model, or from signals of models.

    Args:
        candidates: file of candidates, with columns of the text and ``included``. With neither `synthetic` nor `model`,
            a file of signals, with columns ``target``, ``included``, ``ref_1``, …, ``ref_in_1``, ….
        synthetic: the released texts, or the folder of a run.
        model: folder of the model that was fine-tuned on some of the candidates.
        reference: file of texts of the same kind without candidates; for a model the population of RMIA.
        text: column of the text in files of records.
        synthetic_text: column of the text in the synthetic file.
        attacks: names of attacks: ``ngram``, ``neighbourhood`` for synthetic text; ``loss``, ``lira-online``,
            ``lira-offline``, ``rmia-online``, ``rmia-offline`` for models; empty for the default. The confidence is
            divided among them.
        guesses: numbers of guesses, among which it is divided, too; empty for the default.
        side: ``both`` to guess members and non-members, ``in`` for members only.
        coins: whether an independent fair coin put each candidate in or out: then ε is bounded.
        epsilon: claimed ε at `delta`; None for no claim.
        delta: δ at which ε is bounded.
        confidence: of the bound.
        unit: what a candidate is: ``record``, ``user`` or ``group(k)``.
        order: of ``ngram``, the bytes of an n-gram.
        neighbours: of ``neighbourhood``, the number of nearest texts.
        gamma, a: parameters of RMIA.
        base: public model that the model was fine-tuned from: ``builtin`` or a folder.
        references: number of reference models to train.
        epochs, batch_size, learning_rate: of the training of each.
        workers: processes that train them; None for this one.
        cluster: address of a scheduler of `dask.distributed`, such as ``tcp://10.0.0.1:8786``, whose workers train
            them; `base` must be at the same path there.
        device: where models run: ``auto``, ``cpu`` or ``cuda``.
        seed: of tie-breaking and of reference models; public.
        reading: how files are written; what is not stated is found out. Synthetic texts need not be lists of turns.
        output: private file of the result; signals of reference models are kept in its folder, so that an interrupted
            audit resumes. None to write nothing.
        progress: where to show progress.

    Returns:
        Areas under the curve, rates, and bounds on ε.

    Raises:
        InputError: if a file or an argument is invalid.
    """
    if synthetic is not None and model is not None:
        raise InputError("give synthetic text or a model, not both; audit both one after the other")
    settings = MembershipSettings(
        attacks=tuple(attacks),
        guesses=tuple(guesses),
        side=side,
        coins=coins,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        unit=unit,
        order=order,
        neighbours=neighbours,
        gamma=gamma,
        a=a,
        seed=seed,
        reading=reading,
        progress=progress or Progress(),
    )
    path, other = Path(candidates), None if reference is None else Path(reference)
    if synthetic is not None:
        result = _audit_texts(path, synthetic_file(Path(synthetic)), other, settings, text, synthetic_text)
    elif model is None:
        design = settings.design()
        result = _of_signals(read_signals(path, design.unit, reading), settings, design, {"scores": str(path)})
    else:
        from dpassay.mechanisms.models.fine_tuning import Training

        with input_errors():
            training = Training(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)
        with tempfile.TemporaryDirectory() as temporary:
            folder = (Path(temporary, "private") if output is None else Path(output)).with_name("reference-models")
            result = _audit_model(
                path,
                str(model),
                other,
                settings,
                text=text,
                base=base,
                models=references,
                training=training,
                device=device,
                workers=workers,
                cluster=cluster,
                folder=folder,
            )
    if output is not None:
        write(result.to_json(), Path(output))
    return result


def _audit_model(
    records: Path,
    target: str,
    population: Path | None,
    settings: MembershipSettings,
    *,
    text: str,
    base: str,
    models: int,
    training: Training,
    device: str,
    workers: int | None,
    cluster: str | None,
    folder: Path,
) -> MembershipAudit:
    """Audits a model by its signals and those of so many reference models, which are kept in a folder."""
    from dpassay.attacks.membership.reference_models import reference_signals, signals
    from dpassay.data.records import read_texts
    from dpassay.mechanisms.compute.workers import executor
    from dpassay.mechanisms.models.language_model import LanguageModel

    design = settings.design()
    if not 0 <= models <= MAX_REFERENCES:
        raise InputError(f"--references must be from 0 to {MAX_REFERENCES}, not {models}")
    _check_inputs(settings.chosen(SIGNAL_ATTACKS, "loss"), bool(models), True, population is not None)
    candidates, included = read_candidates(records, text, design.unit, settings.reading)
    _check_alike(records, candidates, included, settings)
    if population is not None:
        check_disjoint(candidates, population, text, settings.reading)
    with input_errors():  # before models are trained for hours
        design.numbers(len(candidates))
        if models:
            _rehearse(included, models, settings)
        others = (
            [] if population is None else [row for row, _ in read_texts(population, text=text, stated=settings.reading)]
        )
        model = LanguageModel.load(target, device, dtype="float32")
        model_signals = signals(model, [*candidates, *others])
        trained = None
        if models:
            with (
                executor(workers, cluster, settings.progress) as do,
                settings.progress.stage("Training reference models") as step,
            ):
                trained = reference_signals(
                    candidates,
                    others,
                    models=models,
                    training=training,
                    seed=settings.seed,
                    source=base,
                    device=device,
                    executor=do,
                    folder=folder,
                    progress=step,
                )
    n, none = len(candidates), np.zeros((0, len(candidates)))
    result = Signals(
        target=model_signals[:n],
        included=included,
        references=none if trained is None else trained.signals,
        inclusion=None if trained is None else trained.inclusion,
        population_target=model_signals[n:],
        population_references=np.zeros((0, len(others))) if trained is None else trained.population,
    )
    return _of_signals(
        result, settings, design, {"records": str(records), "model": target, "population": str(population)}
    )


def _check_alike(path: Path, candidates: Sequence[str], included: Bools, settings: MembershipSettings) -> None:
    """Raises `InputError` if members can be told from the other candidates by how they are written, although coins were
    flipped: a bound would be that of the difference."""
    if not settings.coins:
        return
    members, others = (
        [[text] for text, inside in zip(candidates, included, strict=True) if inside == side] for side in (True, False)
    )
    if differing := unlike_texts(members, others):
        raise InputError(
            f"{path}: members and other candidates differ in how many hold each of {len(differing)} signs or words, "
            "more than coins explain, so that these tell them apart; write all in one way, or leave --coins out if no "
            "coins were flipped"
        )


def _audit_texts(
    records: Path,
    synthetic: Path,
    reference: Path | None,
    settings: MembershipSettings,
    text: str,
    synthetic_text: str,
) -> MembershipAudit:
    """Audits a generator by its synthetic text alone.

    Its search is checked on text that copies every member word for word. Whether the attack sees leaks of this
    generator is shown only by output of the same generator without protection.
    """
    from dpassay.attacks.membership.synthetic_text import neighbourhood_scores, ngram_scores
    from dpassay.data.records import read_texts

    design, names = settings.design(), settings.chosen(TEXT_ATTACKS, "ngram")
    candidates, included = read_candidates(records, text, design.unit, settings.reading)
    _check_alike(records, candidates, included, settings)
    if reference is not None:
        check_disjoint(candidates, reference, text, settings.reading)
    with input_errors():
        design.numbers(len(candidates))
    members = [row for row, inside in zip(candidates, included, strict=True) if inside]

    def scored(name: str, released: Callable[[], Any]) -> Floats:
        other = (
            None if reference is None else (row for row, _ in read_texts(reference, text=text, stated=settings.reading))
        )
        if name == "ngram":
            return ngram_scores(candidates, released(), other, order=settings.order)
        return neighbourhood_scores(candidates, released(), other, neighbours=settings.neighbours)

    def file() -> Any:
        return (row for row, _ in read_texts(synthetic, text=synthetic_text, empty=True, stated=settings.reading))

    by_attack, control = {}, {}
    with settings.progress.stage("Scoring") as step, input_errors():
        for done, name in enumerate(names):
            step(done, len(names))
            by_attack[name] = scored(name, file)
            control[name] = scored(name, lambda: members)
        step(len(names), len(names))
    files = {"records": str(records), "synthetic": str(synthetic), "reference": str(reference) if reference else None}
    shown, copied = MembershipScores(by_attack, included), MembershipScores(control, included)
    with input_errors():
        return MembershipAudit(settings, files, membership_audit(shown, design, control=copied, copies=True))


def _of_signals(
    signals: Signals, settings: MembershipSettings, design: MembershipDesign, files: Mapping[str, str | int | None]
) -> MembershipAudit:
    """Audits signals. The positive control is the same attack on the first reference model, whose members are known."""
    default = "loss" if not len(signals.references) else "lira-offline" if signals.inclusion is None else "lira-online"
    names = settings.chosen(SIGNAL_ATTACKS, default)
    has_population = bool(len(signals.population_target))
    _check_inputs(names, bool(len(signals.references)), signals.inclusion is not None, has_population)
    with input_errors():
        scores = _scores(names, signals, settings)
    known, control = signals.reference_as_target(), None
    if known is not None:
        with contextlib.suppress(
            ValueError
        ):  # with one model removed, too few may be left for an attack, or none that saw a candidate
            control = _scores(names, known, settings)
    files = {**files, "reference_models": len(signals.references)}
    with input_errors():
        return MembershipAudit(settings, files, membership_audit(scores, design, control=control))


def _rehearse(included: Bools, models: int, settings: MembershipSettings) -> None:
    """Runs the attacks on random signals of as many models, so that they fail before the training if they would after.

    Raises:
        ValueError: if there are too few models.
    """
    from dpassay.attacks.membership.reference_models import coins

    rng = np.random.default_rng(0)
    size = len(included)
    result = Signals(
        target=rng.normal(size=size),
        included=included,
        references=rng.normal(size=(models, size)),
        inclusion=coins(models, size, settings.seed),
        population_target=rng.normal(size=1),
        population_references=rng.normal(size=(models, 1)),
    )
    _scores(settings.chosen(SIGNAL_ATTACKS, "lira-online"), result, settings)


def _check_inputs(names: Sequence[str], references: bool, inclusion: bool, population: bool) -> None:
    """Raises `InputError` if an input of an attack is missing."""
    for name in names:
        if name != "loss" and not references:
            raise InputError(
                "LiRA and RMIA need reference models: columns ref_1, ref_2, …, or --references with --model"
            )
        if name.endswith("online") and not inclusion:
            raise InputError(f"{name} needs the members of each reference model: columns ref_in_1, ref_in_2, …")
        if name.startswith("rmia") and not population:
            raise InputError(f"{name} needs population records: rows without `included`, or --reference with --model")


def _scores(names: Sequence[str], signals: Signals, settings: MembershipSettings) -> MembershipScores:
    by_attack = {name: _score(name, signals, settings) for name in names}
    return MembershipScores(by_attack, signals.included, signals.inclusion)


def _score(name: str, signals: Signals, settings: MembershipSettings) -> Floats:
    from dpassay.attacks.membership import scores as attack

    target, references, inclusion = signals.target, signals.references, signals.inclusion
    if name == "loss":
        return attack.loss_threshold(target)
    if name == "lira-offline":
        return attack.lira_offline(target, references, inclusion)
    if name == "lira-online":
        assert inclusion is not None
        return attack.lira_online(target, references, inclusion)
    others = signals.population_target, signals.population_references
    if name == "rmia-offline":
        return attack.rmia_offline(target, references, inclusion, *others, gamma=settings.gamma, a=settings.a)
    assert inclusion is not None
    return attack.rmia_online(target, references, inclusion, *others, gamma=settings.gamma)

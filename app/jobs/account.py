"""The privacy cost of ledgers and of claims together, by every accountant that supports their events."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent, dp_event
from pydantic_core import to_jsonable_python

from dpassay.accounting import events, registry
from dpassay.accounting.accountants.base import TUNED
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Risk
from dpassay.accounting.comparison.risks import risks_of_run
from dpassay.accounting.events import EpsilonDeltaDpEvent
from dpassay.accounting.guarantees import ApproxDP, ExPostDP, Guarantee, PureDP, SecretProtection
from dpassay.accounting.interop.conditions import Condition, Sampler, Unstated
from dpassay.accounting.interop.state import Stated, read_as
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.registry import ACCOUNTANTS, unsupported, upper_bounds
from dpassay.accounting.secret_protection.groups import of_group
from dpassay.audits.implications import describe
from dpassay.audits.verdict import decide
from dpassay.base import validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.html_table import html_table
from dpassay.base.number_format import format_lower, format_number, format_upper
from dpassay.claims.base import Claim, Plan
from dpassay.claims.lints import large_delta
from dpassay.generators.registry import read_claim
from dpassay.jobs.inputs import ForeignFile, Inputs, basis_of_files, is_claim_file, only, open_inputs
from dpassay.reports.text import SYMBOLS


@dataclass(frozen=True)
class LedgerState:
    """The state of a ledger when it was read and verified.

    Attributes:
        path: the file.
        head: the hash of its last entry.
        entries: how many entries it holds.
        anchored: whether an anchor of the ledger was found; it agrees with the ledger.
        unfinished: the names of its unfinished runs.
        assumptions: what bounds on its runs rest on, sentences.
        estimates: why bounds on its runs are estimates, sentences; empty if they are not.
    """

    path: Path
    head: str
    entries: int
    anchored: bool
    unfinished: tuple[str, ...]
    assumptions: tuple[str, ...] = ()
    estimates: tuple[str, ...] = ()

    @classmethod
    def of(cls, ledger: Ledger, basis: Basis) -> LedgerState:
        """The state of an open ledger, and what bounds on its runs rest on."""
        unfinished = tuple(name for name in ledger.runs() if not ledger.run(name).finished)
        of_file = ledger.path, ledger.head, ledger.entries, ledger.anchored
        return cls(*of_file, unfinished, basis.assumptions, basis.estimates)

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON types."""
        body: dict[str, Any] = to_jsonable_python(self)
        return body

    def notes(self) -> list[str]:
        """The state in sentences."""
        anchored = (
            "agrees with its anchor"
            if self.anchored
            else "no anchor of this ledger was found, so a restored or rewritten file would not show"
        )
        notes = [f"{self.path}: verified, {self.entries} entries, head {self.head}; {anchored}"]
        return notes + [
            f"{self.path}: run {name!r} is unfinished: its charges so far are counted" for name in self.unfinished
        ]

    def evidence(self) -> list[str]:
        """What bounds on its runs rest on, a line each."""
        return [f"assumed: {item}" for item in self.assumptions] + [f"an estimate: {item}" for item in self.estimates]


@dataclass(frozen=True)
class IfSampled:
    """The best bound if records were sampled in one way, where nobody says how.

    Attributes:
        sampler: the way.
        adjacency: of the bound.
        bound: None if there is no finite one.
    """

    sampler: Sampler
    adjacency: Adjacency
    bound: Bound | None

    def to_json(self) -> dict[str, Any]:
        """The bound as plain JSON types."""
        bound = None if self.bound is None else self.bound.to_json()
        return {"sampler": str(self.sampler), "adjacency": str(self.adjacency), "bound": bound}


@dataclass(frozen=True)
class Account:
    """Bounds on a total privacy cost.

    Attributes:
        adjacency, unit: of all runs and claims.
        bounds: upper bounds, one or more for each accountant.
        unsupported: accountant → why it has no bound.
        planned: whether the plan of a claim, which has not run, is part of the total.
        budgets: if secrets have several budgets, for each bound the budget of its secrets; else empty.
        ledgers: the ledgers that were read, in the order given.
        risks: what the total means for who is attacked, by `lattice`; empty where it has no certified bound at a δ.
        whole_plan: if runs are unfinished, the bounds with the whole plan of each run in place of its charges so far.
        foreign: the files of other libraries that were read, in the order given.
        if_sampled: where it matters how records were sampled and nobody says it, the best bound for each way.
        assumptions: what ledgers and claims of declared procedures rest on, besides their events, and what a bound for
            a group or for tuned runs does.
        against_claims: whether the total is within what each claim allows, sentences.
        warnings: what makes the question a poor one, sentences.
        hints: why bounds are missing or infinite, and what to state for them, sentences.
        doubts: why bounds are estimates, such as evidence against them; empty if they are not.
        unstated: the assumptions that neither files nor the user state, each with the file or the claim.
    """

    adjacency: Adjacency
    unit: Unit
    bounds: tuple[Bound, ...]
    unsupported: dict[str, str]
    planned: bool = False
    budgets: tuple[SecretProtection, ...] = ()
    ledgers: tuple[LedgerState, ...] = ()
    risks: tuple[Risk, ...] = ()
    whole_plan: tuple[Bound, ...] = ()
    foreign: tuple[ForeignFile, ...] = ()
    if_sampled: tuple[IfSampled, ...] = ()
    assumptions: tuple[str, ...] = ()
    against_claims: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    unstated: tuple[tuple[str, Unstated], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The account as plain JSON types."""
        return {
            "adjacency": str(self.adjacency),
            "unit": str(self.unit),
            "planned": self.planned,
            "bounds": [bound.to_json() for bound in self.bounds],
            **({"risks": [risk.to_json() for risk in self.risks]} if self.risks else {}),
            **({"whole_plan": [bound.to_json() for bound in self.whole_plan]} if self.whole_plan else {}),
            "ledgers": [ledger.to_json() for ledger in self.ledgers],
            **({"foreign": [file.to_json() for file in self.foreign]} if self.foreign else {}),
            **({"if_sampled": [item.to_json() for item in self.if_sampled]} if self.if_sampled else {}),
            **({"assumptions": list(self.assumptions)} if self.assumptions else {}),
            **({"against_claims": list(self.against_claims)} if self.against_claims else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
            **({"hints": list(self.hints)} if self.hints else {}),
            **({"doubts": list(self.doubts)} if self.doubts else {}),
            **({"unstated": [{"of": of, **asdict(item)} for of, item in self.unstated]} if self.unstated else {}),
            **({"budgets": [asdict(budget) for budget in self.budgets]} if self.budgets else {}),
            "unsupported": self.unsupported,
        }

    def _repr_html_(self) -> str:
        rows = [
            (bound.method, bound.quantity.replace("_", " "), format_upper(bound.value), bound.rigor)
            for bound in self.bounds
        ]
        caption = f"{self.adjacency}, unit {self.unit}"
        return html_table(("accountant", "quantity", "at most", "rigor"), rows, caption)


def account(
    given: str | Path | Claim | Sequence[str | Path | Claim],
    *,
    delta: float | None = None,
    method: str | None = None,
    p: float | None = None,
    adjacency: str | None = None,
    sampler: str | None = None,
    records: int | None = None,
    unit: str | None = None,
    normalizer: str | None = None,
    conditions: Collection[str] = (),
    anchor: Path | None = None,
    limit: float | None = None,
) -> Account:
    """Bounds the total privacy cost of ledgers, of files of other libraries, and of claims that have not run.

    Args:
        given: ledgers over one data set, files of other libraries about it, and claims (files that end in ``.yaml`` or
            ``.yml``, or `Claim`s) that would run on it. The plan of a claim is counted. It needs no model, and no data
            unless it depends on where secrets occur.
        delta: δ in (0, 1); None for a pure ε, and an ε at the δ of the claims or files if they agree on one.
        method: one accountant; None for all.
        p: at unit secret, the prior probability of guessing a secret; None for the budgets of runs and claims.
        adjacency, sampler, records, unit, normalizer: what files of other libraries do not record: the neighbouring
            relation, ``poisson``, ``fixed``, ``shuffled`` or ``unknown`` samples, the number of records, the unit, and
            whether noisy sums are divided by a ``public`` number, by one of the ``batch``, or ``unknown``. What is
            stated becomes an assumption of the bounds.
        conditions: names of `Condition`s that hold, such as ``epochs``.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.
        limit: the ε that the total is compared with, by default that of the claims if they agree on one. If it is
            inside the interval of a bound, a narrower one is computed.

    Raises:
        InputError: if a file is neither a ledger nor a claim, a ledger does not verify, adjacencies or units differ, δ
            or p is out of range or does not apply to the unit, the method does not support these events, or files of
            other libraries have no bound without δ.
    """
    several = [given] if isinstance(given, str | Path | Claim) else list(given)
    claims = [read_claim(item) if not isinstance(item, Claim) else item for item in several if _is_claim(item)]
    files = [Path(item) for item in several if not isinstance(item, Claim) and not _is_claim(item)]
    with contextlib.ExitStack() as stack:
        with input_errors():
            for name, value in (("delta", delta), ("p", p)):
                if value is not None:
                    validate.open_probability(**{name: value})
            if method is not None:
                validate.one_of(tuple(ACCOUNTANTS), method=method)
            stated = Stated.of(adjacency, sampler, records, unit, normalizer, conditions)
            inputs = stack.enter_context(open_inputs(files, stated, claims=claims, anchor=anchor))
            if delta is None and not claims:
                delta = only(state.delta for _, state, _ in inputs.readings)
            questions = _questions(inputs, delta, p, limit)
            states = tuple(
                LedgerState.of(ledger, basis)
                for ledger, (_, basis) in zip(inputs.ledgers, inputs.bases[len(claims) :], strict=True)
            )
            event, whole = inputs.charged, inputs.whole_plan
        methods = None if method is None else [method]
        answers = _answers(inputs, event, questions, methods)
        bounds = [bound for _, bound in answers]
        budgets = inputs.unit.is_secret and len(questions) > 1
        promised = tuple(budget for budget, _ in answers if budgets and isinstance(budget, SecretProtection))
        reasons = unsupported(event, adjacency=inputs.adjacency, unit=inputs.unit)
        if method in (None, "ex_post") and "ex_post" not in reasons and not claims:
            try:
                bounds += _realised_bound(inputs)
            except LedgerError as error:  # another process changed it meanwhile
                raise InputError(str(error)) from error
    if method is not None and not bounds:
        raise InputError(f"{method} has no bound here: {reasons.get(method, 'give --delta')}")
    unfinished = any(state.unfinished for state in states)
    whole_plan = _answers(inputs, whole, questions, methods) if unfinished else []
    of_files = basis_of_files([reading for _, _, reading in inputs.readings])
    bases = [basis for _, basis in inputs.bases]
    total = Basis(
        tuple(dict.fromkeys(item for basis in bases for item in basis.assumptions)),
        tuple(item for basis in bases for item in basis.estimates),
        all(basis.exact for basis in bases),
    )
    own = [
        item
        for bound in bounds
        for item in bound.assumptions
        if item == TUNED or (inputs.unit.is_group and bound.rigor.may_support)
    ]
    bounds = [total.under(of_files.under(bound)) for bound in bounds]
    only_files = len(inputs.readings) == len(several)
    if_sampled = tuple(_if_sampled(inputs, questions[-1][1], methods)) if only_files else ()
    return Account(
        inputs.adjacency,
        inputs.unit,
        tuple(bounds),
        reasons,
        planned=bool(claims),
        budgets=promised,
        ledgers=states,
        risks=_risks(inputs, event, bounds, of_files.joined(total)),
        whole_plan=tuple(total.under(of_files.under(bound)) for _, bound in whole_plan),
        foreign=tuple(ForeignFile.of(*read) for read in inputs.readings),
        assumptions=tuple(dict.fromkeys((*own, *total.assumptions))),
        if_sampled=if_sampled,
        against_claims=tuple(_against_claims(inputs, event, total.under)),
        warnings=() if delta is None else tuple(large_delta(delta)),
        hints=_hints(inputs, event, bounds, if_sampled, delta),
        doubts=total.estimates,
        unstated=(
            *((of, item) for of, each in inputs.bases for item in each.unstated if item.name not in stated.conditions),
            *((str(path), item) for path, _, reading in inputs.readings for item in reading.unstated),
        ),
    )


def _against_claims(inputs: Inputs, event: DpEvent, under: Callable[[Bound], Bound]) -> Iterator[str]:
    """Whether the certified bounds on the total meet each claim, a sentence each. No output was made or audited."""
    alone = len(inputs.claims) == 1 and not inputs.ledgers and not inputs.readings
    for claim in inputs.claims:
        guarantee = None if claim.guarantee is None else claim.claimed()
        if guarantee is None or isinstance(guarantee, SecretProtection):  # of secrets each budget has a bound
            continue
        if isinstance(guarantee, ExPostDP):
            yield f"{claim.name} claims {describe(guarantee)}, which depends on the outputs of a run and on no plan."
            continue
        found = upper_bounds(event, guarantee, adjacency=inputs.adjacency, unit=inputs.unit)
        bounds = [bound for bound in map(under, found) if bound.rigor.may_support]
        verdict = decide(guarantee, adjacency=inputs.adjacency, unit=inputs.unit, bounds=bounds)
        what = "its plan" if alone else "everything together"
        said = f"{claim.name} claims {describe(guarantee)}, and {what} "
        finite = [bound for bound in bounds if bound.value < math.inf]
        if not finite:
            yield f"{said}has no certified bound."
            continue
        best, sign = finite[0], SYMBOLS.get(finite[0].quantity, finite[0].quantity.replace("_", " "))
        least = 0.0 if best.interval is None else best.interval.lower
        if verdict.name == "SUPPORTED":
            yield f"{said}keeps to that: {sign} ≤ {format_upper(best.value)} ({best.method})."
        elif isinstance(guarantee, ApproxDP) and least > guarantee.epsilon:
            yield f"{said}costs more: {sign} ≥ {format_lower(least)} ({best.method})."
        else:
            known = f"{sign} ≤ {format_upper(best.value)} ({best.method})"
            yield f"{said}is not proven to keep to that: the least bound is {known}."


def _if_sampled(inputs: Inputs, question: Guarantee, methods: Sequence[str] | None) -> Iterator[IfSampled]:
    """The best certified bound on a question for each sampler that nobody rules out."""
    stated, states = inputs.stated, [state for _, state, _ in inputs.readings]
    if stated.sampler is not None or not any(state.is_sampled and state.sampler is None for state in states):
        return
    for sampler in Sampler:
        meant = (item for state in states for item in state.also if isinstance(item, Adjacency))
        others = (Adjacency.REPLACE_ONE, *meant) if stated.adjacency is None else ()
        for adjacency in dict.fromkeys((inputs.adjacency, *others)):
            try:
                given = dataclasses.replace(stated, sampler=sampler, adjacency=adjacency)
                readings = [read_as(state, given) for state in states]
            except ValueError:  # fixed, and nobody says how many records there are; or the file has another relation
                continue
            event = events.compose([(reading.event, 1) for reading in readings])
            result = upper_bounds(event, question, adjacency=adjacency, unit=inputs.unit, methods=methods)
            best = next((bound for bound in result if bound.value < math.inf), None)
            yield IfSampled(sampler, adjacency, None if best is None else basis_of_files(readings).under(best))


def _hints(
    inputs: Inputs, event: DpEvent, bounds: Sequence[Bound], if_sampled: Sequence[IfSampled], delta: float | None
) -> tuple[str, ...]:
    """Why bounds are missing or infinite, and what to state or to do for them.

    Raises:
        InputError: if δ is missing and nothing is bounded without it.
    """
    readings, stated = inputs.readings, inputs.stated
    of_samplers = dict.fromkeys(hint for _, _, reading in readings for hint in reading.hints)
    results = [f"{hint.removesuffix('.')} (--adjacency, --sampler, --normalizer)." for hint in of_samplers]
    finite = any(bound.value < math.inf for bound in bounds)
    answered = finite or any(item.bound is not None for item in if_sampled)
    composed = events.counted([(event, 1)]).values()
    unbounded = any(isinstance(part, dp_event.NonPrivateDpEvent) for part, _ in composed)
    if readings and delta is None and not answered and (if_sampled or not unbounded):
        raise InputError("no ε is bounded without δ: state it with --delta, such as --delta 1e-5")
    if readings and delta is None and (finite or if_sampled or not unbounded):
        results.append("No δ is given, so only a pure ε is bounded; state δ with --delta.")
    if delta is not None and not finite and not unbounded:
        spent = math.fsum(count * part.delta for part, count in composed if isinstance(part, EpsilonDeltaDpEvent))
        if readings and spent >= delta:
            results.append(
                f"The δ of the mechanisms that are stated by ε and δ add up to {format_upper(spent)}, which is not "
                f"below the δ = {format_number(delta)} that is asked for; state a larger one with --delta."
            )
    shuffled = any(item.sampler is Sampler.SHUFFLED for item in if_sampled) or stated.sampler is Sampler.SHUFFLED
    if shuffled and Condition.EPOCHS not in stated.conditions:
        results.append(
            "With the sampler shuffled every step counts; if each epoch ran to its end, state it with --condition "
            "epochs, and if no step accumulated gradients of two epochs, with --condition once."
        )
    uncounted = any(state.is_sampled and not state.records for _, state, _ in readings)
    if if_sampled and stated.records is None and uncounted:
        results.append("For a bound with the sampler fixed, state the number of records with --records.")
    return tuple(results)


def _is_claim(given: str | Path | Claim) -> bool:
    return isinstance(given, Claim) or is_claim_file(given)


Question = tuple[int | None, Guarantee]
"""The group of secrets, None for all units, and the form of the guarantee to bound."""


def _answers(
    inputs: Inputs, event: DpEvent, questions: Sequence[Question], methods: Sequence[str] | None
) -> list[tuple[Guarantee, Bound]]:
    """The bounds on an event, each with its question."""
    return [
        (question, bound)
        for group, question in questions
        for bound in upper_bounds(
            event if group is None else of_group(event, group),
            question,
            adjacency=inputs.adjacency,
            unit=inputs.unit,
            methods=methods,
        )
    ]


def _questions(inputs: Inputs, delta: float | None, p: float | None, limit: float | None) -> list[Question]:
    """A pure ε, and an ε at δ to be compared with the limit; at unit secret r at p, or at that of each budget."""
    if (delta if inputs.unit.is_secret else p) is not None:
        given, allowed = ("delta", "p") if inputs.unit.is_secret else ("p", "delta")
        raise InputError(f"--{given} does not apply to unit {inputs.unit}; give --{allowed}, or neither")
    if inputs.unit.is_secret:
        budgets = _common_budgets(inputs.ledgers, inputs.plans)
        if p is not None:
            return [(None, SecretProtection(p, 1.0))]
        if not budgets:
            raise InputError("these ledgers do not say at which p secrets are protected; give --p")
        return list(enumerate(budgets))
    claimed = [claim.claimed() for claim in inputs.claims if claim.guarantee is not None]
    approximate = [guarantee for guarantee in claimed if isinstance(guarantee, ApproxDP)]
    delta = only(guarantee.delta for guarantee in approximate) if delta is None else delta
    limit = only(guarantee.epsilon for guarantee in approximate) if limit is None else limit
    pure: list[Question] = [(None, PureDP(0.0))]
    return pure if delta is None else [*pure, (None, ApproxDP(limit or 0.0, delta))]


def _common_budgets(ledgers: Sequence[Ledger], plans: Sequence[Plan]) -> tuple[SecretProtection, ...]:
    """The budgets of the secrets that all runs and plans protect.

    Raises:
        InputError: if they protect different ones. A record without a secret of one list is used in the clear, so a
            secret of another list in it is not protected at all, and occurrences in the two lists do not add up.
    """
    results = {(plan.secrets, plan.budgets) for plan in plans}
    for ledger in ledgers:
        for name in ledger.runs():
            about = ledger.run(name).about
            budgets = tuple(SecretProtection(p, r) for p, r in about.get("budgets", ()))
            results.add((about.get("secrets"), budgets))
    if len(results) > 1:
        raise InputError(
            "these runs protect different secrets, budgets or places, so they do not compose: a record without a "
            "secret is used in the clear, so one run may reveal what another protects; account for each run separately"
        )
    return next(iter(results))[1] if results else ()


def _risks(inputs: Inputs, event: DpEvent, bounds: Sequence[Bound], basis: Basis) -> tuple[Risk, ...]:
    """What the total means for who is attacked, at the δ of a certified bound of `lattice`."""
    for bound in bounds:
        if bound.method == Lattice.name and bound.quantity == "epsilon" and bound.rigor.may_support:
            if math.isinf(bound.value):
                return ()
            return risks_of_run(event, basis, adjacency=inputs.adjacency, unit=inputs.unit, delta=bound.delta)
    return ()


def _realised_bound(inputs: Inputs) -> list[Bound]:
    """The sum of the realised ex-post costs of all runs; empty if a run has none."""
    results: list[Bound] = []
    for ledger in inputs.ledgers:
        for name in ledger.runs():
            run = ledger.run(name)
            if not run.realised():
                return []
            results.append(registry.account(run, method="ex_post", adjacency=inputs.adjacency, unit=inputs.unit))
    if not results:
        return []
    total = (
        math.nextafter(math.fsum(bound.value for bound in results), math.inf) if len(results) > 1 else results[0].value
    )
    return [dataclasses.replace(results[0], value=total)]

"""What ledgers cost, and what claims would cost, together, by every accountant that can read them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from cupel.accounting import events, registry, validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound, Rigor
from cupel.accounting.guarantees import ApproxDP, Guarantee, PureDP, SecretProtection
from cupel.accounting.html_table import html_table
from cupel.accounting.ledger.entries import LedgerError
from cupel.accounting.ledger.ledger import Ledger, common_relation, compose_ledgers, open_ledgers, relation_of
from cupel.accounting.ledger.run import Run
from cupel.accounting.number_format import format_upper
from cupel.accounting.registry import ACCOUNTANTS, unsupported, upper_bounds
from cupel.accounting.secret_protection.groups import of_group
from cupel.claims.base import Claim, Plan
from cupel.claims.read import read_claim
from cupel.errors import InputError, input_errors


@dataclass(frozen=True)
class LedgerState:
    """What a ledger was when it was read and verified.

    Attributes:
        path: the file.
        head: the hash of its last entry.
        entries: how many entries it holds.
        anchored: whether an anchor of it was found, which the ledger agrees with.
        unfinished: the names of its unfinished runs.
    """

    path: Path
    head: str
    entries: int
    anchored: bool
    unfinished: tuple[str, ...]

    @classmethod
    def of(cls, ledger: Ledger) -> LedgerState:
        """The state of an open ledger."""
        unfinished = tuple(name for name in ledger.runs() if not ledger.run(name).finished)
        return cls(ledger.path, ledger.head, ledger.entries, ledger.anchored, unfinished)

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON types."""
        return {**asdict(self), "path": str(self.path), "unfinished": list(self.unfinished)}

    def notes(self) -> list[str]:
        """The state in sentences."""
        anchored = (
            "agrees with its anchor"
            if self.anchored
            else "no anchor of this ledger was found, so a restored or rewritten file would not show"
        )
        notes = [f"{self.path}: verified, {self.entries} entries, head {self.head}; {anchored}"]
        return notes + [
            f"{self.path}: run {name!r} is unfinished: what it charged so far is counted" for name in self.unfinished
        ]


@dataclass(frozen=True)
class Account:
    """The bounds, and why some accountants gave none."""

    adjacency: Adjacency
    unit: Unit
    bounds: tuple[Bound, ...]
    unsupported: dict[str, str]
    planned: bool = False
    """Whether a claim's plan is part of it, which nothing has charged yet."""
    budgets: tuple[SecretProtection, ...] = ()
    """Where secrets have several budgets: for each bound, what the secrets that it is for were promised; else empty."""
    ledgers: tuple[LedgerState, ...] = ()
    """The ledgers that were read, in the order given."""
    whole_plan: tuple[Bound, ...] = ()
    """Where runs are unfinished: the bounds with the whole plan of each run in place of what it charged so far."""

    def to_json(self) -> dict[str, Any]:
        """The account as plain JSON types."""
        return {
            "adjacency": str(self.adjacency),
            "unit": str(self.unit),
            "planned": self.planned,
            "bounds": [bound.to_json() for bound in self.bounds],
            **({"whole_plan": [bound.to_json() for bound in self.whole_plan]} if self.whole_plan else {}),
            "ledgers": [ledger.to_json() for ledger in self.ledgers],
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
    anchor: Path | None = None,
) -> Account:
    """Composes what ledgers charged and what claims would charge, and bounds what it costs together.

    Args:
        given: ledgers over one data set, and claims (files that end in ``.yaml`` or ``.yml``, or `Claim`s) that would
            run on it. Of a claim its plan is charged, which needs no model, and no data but where the places of secrets
            decide it.
        delta: δ in (0, 1); None asks for a pure ε, and at the δ that the claims name, if it is one.
        method: one accountant; None asks all.
        p: at unit secret, the probability of guessing a secret before; None asks for the budgets of runs and claims.
        anchor: the file that holds the heads of the ledgers; None is one in the user's folder for state.

    Raises:
        InputError: for a file that is no ledger or claim, a ledger that does not verify, files at different adjacencies
            or units, an impossible δ, a δ at unit secret or a p at another, or a method that cannot read these events.
    """
    several = [given] if isinstance(given, str | Path | Claim) else list(given)
    claims = [read_claim(one) if not isinstance(one, Claim) else one for one in several if _is_claim(one)]
    files = [Path(one) for one in several if not isinstance(one, Claim) and not _is_claim(one)]
    with contextlib.ExitStack() as stack:
        with input_errors():
            _check_questions(delta, method, p)
            ledgers = stack.enter_context(open_ledgers(files, anchor=anchor))
            asked = _asked(claims, ledgers, delta, p)
            states = tuple(LedgerState.of(ledger) for ledger in ledgers)
            because = _reasons_for_estimate(claims, ledgers)
        methods = None if method is None else [method]
        answers = asked.answers(asked.event, methods)
        bounds = [bound for _, bound in answers]
        budgets = asked.unit.kind == "secret" and len(asked.questions) > 1
        promised = tuple(budget for budget, _ in answers if budgets and isinstance(budget, SecretProtection))
        reasons = unsupported(asked.event, adjacency=asked.adjacency, unit=asked.unit)
        if method in (None, "ex_post") and "ex_post" not in reasons and not claims:
            try:
                bounds += _ex_post(ledgers, asked.adjacency, asked.unit)
            except LedgerError as error:  # changed while it was open
                raise InputError(str(error)) from error
    if method is not None and not bounds:
        raise InputError(f"{method} has no bound here: {reasons.get(method, 'give --delta')}")
    unfinished = any(state.unfinished for state in states)
    return Account(
        asked.adjacency,
        asked.unit,
        tuple(_as_estimate(bound, because) for bound in bounds),
        reasons,
        planned=bool(claims),
        budgets=promised,
        ledgers=states,
        whole_plan=tuple(_as_estimate(bound, because) for _, bound in asked.answers(asked.whole_plan, methods))
        if unfinished
        else (),
    )


def _is_claim(given: str | Path | Claim) -> bool:
    return isinstance(given, Claim) or Path(given).suffix in (".yaml", ".yml")


def _reasons_for_estimate(claims: Sequence[Claim], ledgers: Sequence[Ledger]) -> tuple[str, ...]:
    """Why bounds on these runs are estimates: rows that were not verified to be computed each by itself."""
    found = [
        f"claim {claim.name!r} packs rows, whose shapes follow the data"
        for claim in claims
        if getattr(claim.parameters, "rows", "fixed") == "packed"
    ]
    for ledger in ledgers:
        for name in ledger.runs():
            if not _rows_are_exact(ledger.run(name)):
                found.append(f"{ledger.path}: the rows of run {name!r} were not verified to be computed each by itself")
    return tuple(found)


def _rows_are_exact(run: Run) -> bool:
    """Whether a run notes that its rows were verified, or has none; one of private inference without a note has not."""
    inputs = run.outcome("inputs")
    noted = inputs.value.get("rows") if inputs is not None and isinstance(inputs.value, dict) else None
    infers = (run.about.get("claim") or {}).get("mechanism") == "private_inference"
    rows = noted or run.about.get("rows") or {"exact": not (infers or isinstance(inputs and inputs.value, dict))}
    return bool(rows["exact"])


def _as_estimate(bound: Bound, because: tuple[str, ...]) -> Bound:
    if not because:
        return bound
    return dataclasses.replace(bound, rigor=Rigor.ESTIMATE, assumptions=(*bound.assumptions, *because))


def _check_questions(delta: float | None, method: str | None, p: float | None) -> None:
    if delta is not None:
        validate.open_probability(delta=delta)
    if p is not None:
        validate.open_probability(p=p)
    if method is not None:
        validate.one_of(tuple(ACCOUNTANTS), method=method)


@dataclass(frozen=True)
class _Asked:
    """What is to be accounted for.

    Attributes:
        adjacency: of all runs and claims.
        unit: of all runs and claims.
        event: what was charged, and what the claims would charge.
        whole_plan: the same with the plan of each run in place of its charges.
        questions: what is asked of an event.
    """

    adjacency: Adjacency
    unit: Unit
    event: DpEvent
    whole_plan: DpEvent
    questions: Sequence[Question]

    def answers(self, event: DpEvent, methods: Sequence[str] | None) -> list[tuple[Guarantee, Bound]]:
        """The bounds on an event, each with what was asked."""
        return [
            (question, bound)
            for group, question in self.questions
            for bound in upper_bounds(
                event if group is None else of_group(event, group),
                question,
                adjacency=self.adjacency,
                unit=self.unit,
                methods=methods,
            )
        ]


def _asked(claims: Sequence[Claim], ledgers: Sequence[Ledger], delta: float | None, p: float | None) -> _Asked:
    relations = [(claim.name, (claim.adjacency, Unit.parse(claim.unit))) for claim in claims]
    if ledgers:
        relations.append((str(ledgers[0].path), relation_of(ledgers)))
    adjacency, unit = common_relation(relations)
    if (delta if unit.kind == "secret" else p) is not None:
        given, asked = ("delta", "p") if unit.kind == "secret" else ("p", "delta")
        raise InputError(f"--{given} says nothing at unit {unit}; give --{asked}, or neither")
    plans = [claim.plan() for claim in claims]
    if unit.kind == "secret":
        questions = _about_secrets(_same_secrets(ledgers, plans), p)
    else:
        questions = _about_units(_claimed_delta(claims) if delta is None else delta)
    claimed = [(plan.event, 1) for plan in plans]
    runs = [ledger.run(name) for ledger in ledgers for name in ledger.runs()]
    event = events.compose([*claimed, *([(compose_ledgers(ledgers), 1)] if ledgers else [])])
    whole_plan = events.compose([*claimed, *((run.plan, 1) for run in runs)])
    return _Asked(adjacency, unit, event, whole_plan, questions)


Question = tuple[int | None, Guarantee]
"""What is asked, and for which group of secrets; None for all units."""


def _about_units(delta: float | None) -> list[Question]:
    """A pure ε, and an ε at δ if there is one."""
    pure: list[Question] = [(None, PureDP(0.0))]
    return pure if delta is None else [*pure, (None, ApproxDP(0.0, delta))]


def _about_secrets(budgets: Sequence[SecretProtection], p: float | None) -> list[Question]:
    """r at p for all secrets, or for the secrets of each budget at their own p."""
    if p is not None:
        return [(None, SecretProtection(p, 1.0))]
    if not budgets:
        raise InputError("these ledgers do not say at which p secrets are protected; give --p")
    return list(enumerate(budgets))


def _same_secrets(ledgers: Sequence[Ledger], plans: Sequence[Plan]) -> tuple[SecretProtection, ...]:
    """The budgets of the secrets that all runs and plans protect.

    Raises:
        InputError: where they protect different ones. A record without a secret of one list is used in the clear, so a
            secret of another list in it is not protected at all, and places of one do not add up with those of another.
    """
    found = {(plan.secrets, plan.budgets) for plan in plans}
    for ledger in ledgers:
        for name in ledger.runs():
            about = ledger.run(name).about
            budgets = tuple(SecretProtection(p, r) for p, r in about.get("budgets", ()))
            found.add((about.get("secrets"), budgets))
    if len(found) > 1:
        raise InputError(
            "these runs protect different secrets, budgets or places, and such runs do not compose: a record without a "
            "secret is used in the clear, so what one run protects another may show; account for each by itself"
        )
    return next(iter(found))[1] if found else ()


def _claimed_delta(claims: Sequence[Claim]) -> float | None:
    """The δ of the claimed guarantees, where there is one and the same."""
    guarantees = [claim.claimed() for claim in claims if claim.guarantee is not None]
    named = {guarantee.delta for guarantee in guarantees if isinstance(guarantee, ApproxDP)}
    return named.pop() if len(named) == 1 else None


def _ex_post(ledgers: Sequence[Ledger], adjacency: Adjacency, unit: Unit) -> list[Bound]:
    """The realised cost of all runs together: ex-post costs of separate runs over one data set add up."""
    found: list[Bound] = []
    for ledger in ledgers:
        for name in ledger.runs():
            run = ledger.run(name)
            if not run.realised():
                return []
            found.append(registry.account(run, method="ex_post", adjacency=adjacency, unit=unit))
    if not found:
        return []
    total = math.nextafter(math.fsum(bound.value for bound in found), math.inf) if len(found) > 1 else found[0].value
    return [dataclasses.replace(found[0], value=total)]

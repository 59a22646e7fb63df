"""What ledgers cost, and what claims would cost, together, by every accountant that can read them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from cupel.accounting import events, validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound
from cupel.accounting.guarantees import ApproxDP, Guarantee, PureDP, SecretProtection
from cupel.accounting.ledger import Ledger, common_relation, compose_ledgers, relation_of
from cupel.accounting.registry import ACCOUNTANTS, account, unsupported, upper_bounds
from cupel.accounting.secret_protection import of_group
from cupel.claim import Claim, read_claim
from cupel.claim_base import Plan
from cupel.errors import InputError, input_errors
from cupel.reports.text import number


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

    def to_json(self) -> dict[str, Any]:
        """The account as plain JSON types."""
        return {
            "adjacency": str(self.adjacency),
            "unit": str(self.unit),
            "planned": self.planned,
            "bounds": [bound.to_json() for bound in self.bounds],
            **({"budgets": [asdict(budget) for budget in self.budgets]} if self.budgets else {}),
            "unsupported": self.unsupported,
        }


def account_files(paths: Sequence[Path], *, delta: float | None, method: str | None, p: float | None = None) -> Account:
    """Composes what ledgers charged and what claims would charge, and bounds what it costs together.

    Args:
        paths: ledgers over one data set, and claims (``.yaml``, ``.yml``) that would run on it: of a claim its plan is
            charged, which needs no model, and no data but where the places of secrets decide it.
        delta: δ in (0, 1); None asks for a pure ε, and at the δ that the claims name, if it is one.
        method: one accountant; None asks all.
        p: at unit secret, the probability of guessing a secret before; None asks for the budgets of runs and claims.

    Raises:
        InputError: for a file that is no ledger or claim, files at different adjacencies or units, an impossible δ,
            a δ at unit secret or a p at another, or a method that cannot read these events.
    """
    claims = [read_claim(path) for path in paths if path.suffix in (".yaml", ".yml")]
    ledgers = [path for path in paths if path.suffix not in (".yaml", ".yml")]
    with input_errors():
        if delta is not None:
            validate.open_probability(delta=delta)
        if p is not None:
            validate.open_probability(p=p)
        if method is not None:
            validate.one_of(tuple(ACCOUNTANTS), method=method)
        relations = [(claim.name, (claim.adjacency, Unit.parse(claim.unit))) for claim in claims]
        if ledgers:
            relations.append((str(ledgers[0]), relation_of(ledgers)))
        adjacency, unit = common_relation(relations)
        if (delta if unit.kind == "secret" else p) is not None:
            given, asked = ("delta", "p") if unit.kind == "secret" else ("p", "delta")
            raise InputError(f"--{given} says nothing at unit {unit}; give --{asked}, or neither")
        plans = [claim.plan() for claim in claims]
        if unit.kind == "secret":
            budgets = _same_secrets(ledgers, plans)
        event = events.compose(
            [(plan.event, 1) for plan in plans] + ([(compose_ledgers(ledgers), 1)] if ledgers else [])
        )
        if unit.kind == "secret":
            questions = _about_secrets(event, budgets, p)
        else:
            questions = _about_units(event, _claimed_delta(claims) if delta is None else delta)
    methods = None if method is None else [method]
    answers = [
        (question, bound)
        for asked, question in questions
        for bound in upper_bounds(asked, question, adjacency=adjacency, unit=unit, methods=methods)
    ]
    bounds = [bound for _, bound in answers]
    several = unit.kind == "secret" and len(questions) > 1
    promised = tuple(budget for budget, _ in answers if several and isinstance(budget, SecretProtection))
    reasons = unsupported(event, adjacency=adjacency, unit=unit)
    if method in (None, "ex_post") and "ex_post" not in reasons and not claims:
        bounds += _ex_post(ledgers, adjacency, unit)
    if method is not None and not bounds:
        raise InputError(f"{method} has no bound here: {reasons.get(method, 'give --delta')}")
    return Account(adjacency, unit, tuple(bounds), reasons, planned=bool(claims), budgets=promised)


Question = tuple[DpEvent, Guarantee]


def _about_units(event: DpEvent, delta: float | None) -> list[Question]:
    """A pure ε, and an ε at δ if there is one."""
    pure: list[Question] = [(event, PureDP(0.0))]
    return pure if delta is None else [*pure, (event, ApproxDP(0.0, delta))]


def _about_secrets(event: DpEvent, budgets: Sequence[SecretProtection], p: float | None) -> list[Question]:
    """r at p for all secrets, or for the secrets of each budget at their own p."""
    if p is not None:
        return [(event, SecretProtection(p, 1.0))]
    if not budgets:
        raise InputError("these ledgers do not say at which p secrets are protected; give --p")
    return [(of_group(event, group), budget) for group, budget in enumerate(budgets)]


def _same_secrets(ledgers: Sequence[Path], plans: Sequence[Plan]) -> tuple[SecretProtection, ...]:
    """The budgets of the secrets that all runs and plans protect.

    Raises:
        InputError: where they protect different ones. A record without a secret of one list is used in the clear, so a
            secret of another list in it is not protected at all, and places of one do not add up with those of another.
    """
    found = {(plan.secrets, plan.budgets) for plan in plans}
    for path in ledgers:
        with Ledger.open(path, read_only=True) as ledger:
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


def _ex_post(paths: Sequence[Path], adjacency: Adjacency, unit: Unit) -> list[Bound]:
    """The realised cost of all runs together: ex-post costs of separate runs over one data set add up."""
    found: list[Bound] = []
    for path in paths:
        with Ledger.open(path, read_only=True) as ledger:
            for name in ledger.runs():
                run = ledger.run(name)
                if not run.realised():
                    return []
                found.append(account(run, method="ex_post", adjacency=adjacency, unit=unit))
    if not found:
        return []
    total = math.nextafter(math.fsum(bound.value for bound in found), math.inf) if len(found) > 1 else found[0].value
    return [dataclasses.replace(found[0], value=total)]


def print_table(account: Account) -> None:
    """The account as a table for people; where an accountant encloses the exact value, with its lower end."""
    from rich.console import Console
    from rich.table import Table

    what = "would be charged" if account.planned else "was charged"
    table = Table(title=f"What {what}, at {account.adjacency}, unit {account.unit}")
    enclosed = any(bound.interval for bound in account.bounds)
    function = "p" if account.unit.kind == "secret" else "δ"
    of = ["claimed"] if account.budgets else []
    for column in ("accountant", "quantity", *of, *(["at least"] if enclosed else []), "at most", function, "rigor"):
        table.add_column(column, overflow="fold")
    claimed = [[f"{budget.r:g}"] for budget in account.budgets]
    for bound, whose in zip(account.bounds, claimed or [[]] * len(account.bounds), strict=True):
        note = " (private: depends on the data)" if bound.private else ""
        least = [number(bound.interval.lower, "down", 6) if bound.interval else ""] if enclosed else []
        argument = bound.delta if account.unit.kind != "secret" else bound.at
        at = "" if argument is None else f"{argument:.3g}"
        quantity = bound.quantity.replace("_", "-") + note
        table.add_row(bound.method, quantity, *whose, *least, number(bound.value, "up", 6), at, bound.rigor)
    console = Console()
    console.print(table)
    for name, reason in account.unsupported.items():
        console.print(f"{name}: {reason}", markup=False)

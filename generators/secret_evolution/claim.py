"""Claims about secret-protected evolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from dp_accounting import DpEvent
from pydantic import Discriminator, Field, Tag

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.guarantees import Guarantee, SecretProtection
from dpassay.accounting.secret_protection.groups import of_group
from dpassay.base.errors import InputError, input_errors
from dpassay.claims.base import (
    AT_LEAST_1,
    P_LIMITS,
    POSITIVE,
    R_LIMITS,
    Count,
    Number,
    Plan,
    Public,
    SecretProtectionClaim,
    key,
    parameters_model,
)
from dpassay.claims.data import BuiltinData, Strict
from dpassay.generators.evolution.claim import (
    EMBEDDED_ALONE,
    EVOLUTION_LIMITS,
    NOT_OF_THE_MECHANISM,
    WRITER_FIELDS,
    EvolutionClaim,
)
from dpassay.mechanisms.secret_evolution.detection import secret_source
from dpassay.mechanisms.secret_evolution.generator import SecretEvolution


class _Source(Strict):
    p: Number | None = key("p for these secrets; by default that of the parameters", None, P_LIMITS)
    r: Number | None = key("r for these secrets; by default that of the parameters", None, R_LIMITS)


class ListedSource(_Source):
    """Secrets in a file: one per line, or CSV or JSON Lines with a column `secret` and optional columns `p` and `r`."""

    list: Path = Field(description="the path, relative to the claim file")


class PatternSource(_Source):
    """Matches of a regular expression of Python's `re`."""

    pattern: str = key("the regular expression")
    each: Literal["match", "pattern"] | None = Field(
        default=None, description="whether each match is a secret, or all matches are one secret"
    )


class QuantileSource(_Source):
    """Words of a given frequency, for experiments."""

    quantile: Number = key(
        "where the words begin, the most frequent one first: 0.2 is the word that a fifth of all words precede",
        limits={"exclusiveMinimum": 0, "exclusiveMaximum": 1},
    )
    count: Count = key("number of words", limits=AT_LEAST_1)


class PresidioSource(_Source):
    """Entities that Presidio recognises in English text."""

    presidio: Sequence[str] = Field(description="names of its entities, such as EMAIL_ADDRESS")
    each: Literal["match", "entity"] | None = Field(
        default=None, description="whether each match is a secret, or all matches are one secret"
    )
    model: str | None = Field(default=None, description="an installed model of spaCy")


_KINDS: dict[str, type[_Source]] = {
    "list": ListedSource,
    "pattern": PatternSource,
    "quantile": QuantileSource,
    "presidio": PresidioSource,
}


def _kind(value: object) -> str | None:
    """The name of the class of a source; None unless it has exactly one of the keys in `_KINDS`."""
    if isinstance(value, _Source):
        return type(value).__name__
    results = [kind for kind in _KINDS if isinstance(value, dict) and kind in value]
    return _KINDS[results[0]].__name__ if len(results) == 1 else None


SecretSource = Annotated[
    Annotated[ListedSource, Tag("ListedSource")]
    | Annotated[PatternSource, Tag("PatternSource")]
    | Annotated[QuantileSource, Tag("QuantileSource")]
    | Annotated[PresidioSource, Tag("PresidioSource")],
    Discriminator(
        _kind,
        custom_error_type="own_message",
        custom_error_message="a source of secrets is a mapping with exactly one of the keys list, pattern, quantile "
        "and presidio, such as {list: secrets.txt}",
    ),
]

SecretEvolutionParameters: Any = parameters_model(
    "SecretEvolutionParameters",
    SecretEvolution,
    {"labels", "variant"},
    {
        **EVOLUTION_LIMITS,
        "p": P_LIMITS,
        "r": R_LIMITS,
        "clusters": AT_LEAST_1,
        **dict.fromkeys(("radius", "expected_sample"), POSITIVE),
    },
    secrets=(list[SecretSource], Field(min_length=1, description="where secrets are found, at least one source")),
    examples=(
        Count,
        Field(
            0,
            ge=0,
            description="number of public records of each label in prompts, also those for an endpoint",
        ),
    ),
    **WRITER_FIELDS,
)


class SecretPublic(Public):
    """What is public by assumption, besides where secrets occur and the records without a secret."""

    records: int | None = Field(default=None, ge=1, description="the number of records; needed for builtin data")  # type: ignore[assignment]


def default_group(budgets: Sequence[SecretProtection], default: SecretProtection) -> int | None:
    """The group of secrets that have the default budget; None if every secret has another one."""
    return list(budgets).index(default) if default in budgets else None


def guarantees_of_groups(
    claimed: Guarantee, event: DpEvent, budgets: Sequence[SecretProtection], default: SecretProtection
) -> list[tuple[Guarantee, DpEvent]]:
    """What must hold of an event: the claim for the secrets with the default budget (for all secrets if none has it),
    then the budget of each other group, each with the event as its secrets see it."""
    own = default_group(budgets, default)
    first = (claimed, event if own is None else of_group(event, own))
    return [first, *((budget, of_group(event, group)) for group, budget in enumerate(budgets) if group != own)]


class SecretEvolutionClaim(EvolutionClaim):
    """A claim about secret-protected evolution, or the configuration of a run."""

    unit: Literal["secret"] = "secret"
    adjacency: Adjacency = Adjacency.SECRET
    mechanism: Literal["secret_evolution"]
    parameters: SecretEvolutionParameters
    public: SecretPublic = SecretPublic(labels=[])
    guarantee: SecretProtectionClaim | None = None
    audits: Sequence[Literal["secret_reconstruction"]] = []

    newer_parameters: ClassVar[Mapping[str, Any]] = {"inclusion": "coins"}

    def check(self) -> None:
        super().check()
        if self.adjacency is not Adjacency.SECRET:
            raise ValueError(f"adjacency: must be secret for secret_evolution, not {self.adjacency}")
        if isinstance(self.data, BuiltinData) and self.public.records is None:
            raise ValueError("public.records: is missing; it says how many builtin records are drawn")
        if self.guarantee is not None and self.guarantee.r <= self.guarantee.p:
            raise ValueError(
                f"guarantee: r must be above p, since p is reached without any release; not p={self.guarantee.p!r} and "
                f"r={self.guarantee.r!r}"
            )

    def generator(self) -> SecretEvolution:
        given = self.parameters.model_dump(exclude={*NOT_OF_THE_MECHANISM, "examples", "secrets"})
        written = (source.model_dump(mode="json", exclude_none=True) for source in self.parameters.secrets)
        sources = tuple(map(secret_source, written))
        return SecretEvolution(**given, secrets=sources, labels=tuple(self.public.labels), variant=self.variant)

    @classmethod
    def mechanism_in_words(cls, parameters: Mapping[str, Any]) -> str:
        return "Secret-protected evolution of synthetic documents by noisy votes"

    def plan(self) -> Plan:
        mechanism, records = self.generator(), self.load_records()
        self.check_records(len(records))
        with input_errors():
            indices = mechanism.incidence(records)
            return Plan(mechanism.plan(indices), indices.fingerprint, indices.budgets)

    def assumptions(self) -> list[str]:
        weighted = "Each private record counts in every release with a weight that follows from where secrets occur."
        return [
            *([weighted] if self.parameters.inclusion == "weights" else []),
            "Where secrets occur is public, and with it which records hold one. With another value, each secret would "
            "have been found at the same places.",
            "Records without a secret are public.",
            "Before the release, no guess of a secret is right with a probability above its p.",
            EMBEDDED_ALONE,
        ]

    def stated(self) -> dict[str, Any]:
        kinds = {item: kind for kind, item in _KINDS.items()}
        return {"sources of secrets": [kinds[type(source)] for source in self.parameters.secrets]}

    def check_records(self, result: int) -> None:
        """Checks the number of records in the data against the public number of the claim, if it states one.

        Raises:
            InputError: if they differ. The number is public.
        """
        if self.public.records not in (None, result):
            raise InputError(
                f"public.records: is {self.public.records}, and the data hold {result} records; correct it or leave it "
                "out"
            )

    def parameter_warnings(self) -> list[str]:
        result = super().parameter_warnings()
        if not any(isinstance(source, PresidioSource) for source in self.parameters.secrets):
            return result
        return [
            *result,
            "Secrets are found by a recogniser that looks at their values (checksums, names): with another value a "
            "secret might not have been found. That places are public does not cover this.",
        ]

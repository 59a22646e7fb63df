"""The base class of claims, with what all mechanisms share; `dpassay.claims.read` reads claims from files."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from dpassay.accounting import guarantees
from dpassay.accounting.adjacency import UNITS, Adjacency, Unit
from dpassay.accounting.ledger.evidence import Basis
from dpassay.base.errors import InputError
from dpassay.claims.data import Data, Strict, is_local, load, paths_in, with_paths
from dpassay.data.records import Record

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from dpassay.accounting.interop.conditions import Unstated


def no_bool(value: object) -> object:
    """`value`, unless it is a bool: YAML reads a bare ``yes`` as True, and Python treats True as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not a truth value")
    return value


def _delta(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"n\^-\d+(\.\d+)?", value.strip()):
        return value.strip()
    return no_bool(value)


def _lengths(value: object) -> object:
    values = list(value.values()) if isinstance(value, dict) else [value]
    if value is not None and not all(type(number) is int and number >= 1 for number in values):
        raise ValueError("must be a whole number of at least 1, or one for each label, such as {note: 64, letter: 200}")
    return value


def _printable(value: str) -> str:
    words = " ".join(value.split())
    if not words or not words.isprintable():
        raise ValueError("must be words that can be printed")
    return words


PrintedText = Annotated[str, AfterValidator(_printable), Field(max_length=500)]
Number = Annotated[float, BeforeValidator(no_bool)]
Count = Annotated[int, BeforeValidator(no_bool)]

Limits = Mapping[str, float]
"""The range of a number, as in JSON Schema: ``minimum``, ``exclusiveMinimum``, ``maximum``, ``exclusiveMaximum``."""

AT_LEAST_0: Limits = {"minimum": 0}
AT_LEAST_1: Limits = {"minimum": 1}
POSITIVE: Limits = {"exclusiveMinimum": 0}
PROBABILITY: Limits = {"minimum": 0, "maximum": 1}
P_LIMITS: Limits = {"exclusiveMinimum": 0, "exclusiveMaximum": 1}
R_LIMITS: Limits = {"exclusiveMinimum": 0, "maximum": 1}


def key(meaning: str, default: Any = ..., limits: Limits | None = None) -> Any:
    """A key of a claim.

    Args:
        meaning: for the schema, which editors show, and for the reference.
        default: left out, the key is required.
        limits: for the schema alone, of a number that the mechanism or the guarantee checks in its own words.
    """
    return Field(default, description=meaning, json_schema_extra=None if limits is None else dict(limits))


Delta = Annotated[
    float | Annotated[str, Field(pattern=r"^n\^-\d+(\.\d+)?$")],
    BeforeValidator(_delta),
    Field(
        description="δ, a probability by which ε may be exceeded; or `n^-1.1` with the public number of records n",
        json_schema_extra={"exclusiveMinimum": 0, "exclusiveMaximum": 1},
    ),
]


class PureDPClaim(Strict):
    """Pure differential privacy: ε bounds the privacy loss of every outcome."""

    type: Literal["pure_dp"] = key("the kind of guarantee")
    epsilon: Number = key("ε, the largest privacy loss of any outcome", limits=AT_LEAST_0)


class ApproxDPClaim(Strict):
    """Approximate differential privacy, (ε, δ)."""

    type: Literal["approx_dp"] = key("the kind of guarantee")
    epsilon: Number = key("ε, the largest privacy loss, but for δ", limits=AT_LEAST_0)
    delta: Delta


class ZCDPClaim(Strict):
    """Zero-concentrated differential privacy."""

    type: Literal["zcdp"] = key("the kind of guarantee")
    rho: Number = key("ρ: the Rényi divergence of every order α is at most ρα", limits=AT_LEAST_0)


class GDPClaim(Strict):
    """Gaussian differential privacy."""

    type: Literal["gdp"] = key("the kind of guarantee")
    mu: Number = key(
        "μ: neighbours are as hard to tell apart as two Gaussians of variance 1 whose means differ by μ",
        limits=AT_LEAST_0,
    )


class RDPClaim(Strict):
    """Rényi differential privacy of one order."""

    type: Literal["rdp"] = key("the kind of guarantee")
    alpha: Number = key("α, the order", limits={"exclusiveMinimum": 1})
    epsilon: Number = key("the largest Rényi divergence of order α", limits=AT_LEAST_0)


class ExPostClaim(Strict):
    """Ex-post privacy: of the one output that was drawn."""

    type: Literal["ex_post"] = key("the kind of guarantee")
    epsilon: Number = key("ε, the largest privacy loss of the output that was drawn", limits=AT_LEAST_0)


class SecretProtectionClaim(Strict):
    """Secret protection: how well a secret can be guessed before and after the release."""

    type: Literal["secret_protection"] = key("the kind of guarantee")
    p: Number = key("the largest probability of guessing a secret before the release", limits=P_LIMITS)
    r: Number = key("the largest probability of guessing it after the release, above p", limits=R_LIMITS)


GuaranteeClaim = Annotated[
    PureDPClaim | ApproxDPClaim | ZCDPClaim | GDPClaim | RDPClaim | ExPostClaim | SecretProtectionClaim,
    Field(discriminator="type"),
]

_GUARANTEES: dict[str, type[Any]] = {
    "pure_dp": guarantees.PureDP,
    "approx_dp": guarantees.ApproxDP,
    "zcdp": guarantees.ZCDP,
    "gdp": guarantees.GDP,
    "rdp": guarantees.RDP,
    "ex_post": guarantees.ExPostDP,
    "secret_protection": guarantees.SecretProtection,
}


class Public(Strict):
    """What is public by assumption. Everything else that is computed from the data is charged."""

    records: int = Field(
        ge=1,
        description="the number n of privacy units, which may be known to everyone: of records, or at unit `user` of "
        "users, however many records they have",
    )
    labels: list[str] = Field([], description="the set of labels")
    context_tokens: Annotated[int | dict[str, int] | None, BeforeValidator(_lengths)] = key(
        "for private_inference: the number of tokens that a context may have, prompt included, for all labels or for "
        "each; longer records are cut, shorter ones padded",
        None,
        AT_LEAST_1,
    )


def public_numbers(units: str, *, labels: bool) -> str:
    """The assumption that what a claim states as public is.

    Args:
        units: what is counted, in the plural.
        labels: whether labels are used.
    """
    return f"The number of {units}{' and the set of labels are' if labels else ' is'} public."


def meanings(kind: type) -> dict[str, str]:
    """What the docstring of a class says of its attributes, by name, without the marks of code that only Python has.

    Args:
        kind: a class with a section ``Attributes`` in its docstring, indented as by Google's style.
    """
    section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    results: dict[str, str] = {}
    for names, meaning in re.findall(r"^ {4}(\w+(?:, \w+)*): (.+(?:\n {8}.+)*)", section, re.MULTILINE):
        text = re.sub(r"\s+", " ", meaning).replace("``", "`").replace("None", "null").rstrip(".")
        results |= dict.fromkeys(names.split(", "), text)
    return results


def parameters_model(
    name: str, mechanism: type, stated_elsewhere: Collection[str], limits: Mapping[str, Limits], **fields: Any
) -> Any:
    """The model of a claim's `parameters`: one field for each parameter of the mechanism.

    What each means is said by the mechanism's docstring, or by the field that takes its place.

    Args:
        name: of the model.
        mechanism: dataclass of the mechanism.
        stated_elsewhere: fields of it that a claim states under `public` or at its top level.
        limits: ranges of its numbers, as the mechanism checks them; for the schema.
        fields: fields of the claim alone, or of another type there, as for `pydantic.create_model`.
    """
    hints, said = typing.get_type_hints(mechanism), meanings(mechanism)
    made: dict[str, Any] = {}
    for field in dataclasses.fields(mechanism):
        if field.name not in stated_elsewhere:
            kind = hints[field.name]
            if kind in (int, float, int | None, float | None):
                kind = Annotated[kind, BeforeValidator(no_bool)]
            default = ... if field.default is dataclasses.MISSING else field.default
            made[field.name] = (kind, key(said.get(field.name, ""), default, limits.get(field.name)))
    return create_model(name, __base__=Strict, **{**made, **fields})


class GeneratorParameters(Protocol):
    """The parameters of a generator, as `dpassay.mechanisms` has them."""

    @property
    def adjacency(self) -> Adjacency: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def releasable(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run of a claim would charge.

    Attributes:
        event: composition of all charges.
        secrets: fingerprint of where secrets occur; None unless the unit is a secret.
        budgets: of each group of secrets.
        exact: whether a run costs what the event says in the worst case; or else less, so that no lower end follows.
    """

    event: DpEvent
    secrets: str | None = None
    budgets: tuple[guarantees.SecretProtection, ...] = ()
    exact: bool = True


class Claim(Strict):
    """A privacy claim; without `guarantee`, the configuration of a run.

    Each mechanism has a subclass, which narrows `mechanism`, `parameters` and `audits`.
    """

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100, description="how reports and ledgers name the claim"
    )
    data: Data = key("where the private data are")
    unit: str = Field("record", description=f"what one guarantee protects: {UNITS}")
    adjacency: Adjacency = key(
        "which two data sets are neighbours: one unit is added or removed (add_remove), exchanged for another "
        "(replace_one) or made null (zero_out), or the value of one secret changes (secret)",
        Adjacency.ADD_REMOVE,
    )
    mechanism: str = key("what runs")
    variant: Literal["sound", "as_published"] = key(
        "sound, or as_published: the algorithm as its paper describes it, of which less can be proven", "sound"
    )
    parameters: Any = key("of the mechanism")
    model: str = Field("builtin", description="the language model: builtin, a local folder, or a hub id")
    public: Public = key("what is public by assumption; everything else that is computed from the data is charged")
    guarantee: GuaranteeClaim | None = key("what is claimed; without it, a claim is the configuration of a run", None)
    audits: Sequence[str] = key("attacks that the run is audited with", [])
    contact: PrintedText | None = key("who answers for what is released; public, printed on reports", None)
    purpose: PrintedText | None = key("what the release is for; public, printed on reports", None)
    period: PrintedText | None = key("the time that the data are about; public, printed on reports", None)

    spread: ClassVar[bool] = False
    """Whether a run can use the workers of this machine or of a cluster."""
    newer_parameters: ClassVar[Mapping[str, Any]] = {}
    """Parameters that runs of earlier versions do not record, with the value that those runs had."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.generator()
        if self.guarantee is not None:
            self.claimed()
        if len(set(self.audits)) != len(self.audits):
            raise ValueError("audits: each audit is named once")
        self.check()
        return self

    def check(self) -> None:
        """Checks of a subclass beyond those of its parameters.

        Raises:
            ValueError: one line that begins with the key.
        """

    def claimed(self) -> guarantees.Guarantee:
        """The claimed guarantee, with a δ such as ``n^-1.1`` computed from the public number of records."""
        if self.guarantee is None:
            raise InputError(f"{self.name}: a claim needs a `guarantee`, for example {{type: pure_dp, epsilon: 1.0}}")
        values = self.guarantee.model_dump(exclude={"type"})
        if isinstance(values.get("delta"), str):
            if self.public.records is None:
                raise InputError(f"public.records: is missing; δ = {values['delta']} needs it")
            values["delta"] = float(self.public.records) ** float(values["delta"][2:])
        guarantee: guarantees.Guarantee = _GUARANTEES[self.guarantee.type](**values)
        return guarantee

    def resolved(self, begun: Callable[[], Mapping[str, Any] | None]) -> Self:
        """The claim of a run, which states each parameter whose default was another one in earlier versions.

        Args:
            begun: gives the parameters that the run in the folder began with, and None for a new run.
        """
        return self

    def generator(self) -> GeneratorParameters:
        """The mechanism that the claim describes."""
        raise NotImplementedError

    @classmethod
    def mechanism_in_words(cls, parameters: Mapping[str, Any]) -> str:
        """What the mechanism does with these parameters, for a report; empty for its name."""
        return ""

    def plan(self) -> Plan:
        """What a run would charge. It reads the data only if the charge depends on where secrets occur."""
        mechanism: Any = self.generator()
        return Plan(mechanism.plan())

    def load_records(self, download: bool = False) -> Sequence[Record]:
        """The private records that the claim is about.

        Args:
            download: whether a data set of the hub may be fetched.

        Raises:
            InputError: if the data are missing, do not match the claim, or hold no record.
        """
        return load(self.data, self.public.records, download, self.public.labels)

    def described(self) -> dict[str, Any]:
        """The claim in JSON types, for a report: files and folders by name only, since paths describe the machine."""
        named: Self = with_paths(self, lambda path: Path(path.name))
        body: dict[str, Any] = named.model_dump(mode="json", exclude_none=True)
        body["data"] = self.data.described()
        if is_local(self.model):
            body["model"] = Path(self.model).resolve().name
        return body

    def with_model(self, model: str | None) -> Self:
        """The claim with another model, if one is given."""
        return self if model is None else self.model_copy(update={"model": model})

    def with_parameters(self, **changes: object) -> Self:
        """The claim with other values of some parameters."""
        return self.model_copy(update={"parameters": self.parameters.model_copy(update=changes)})

    def reads(self, *others: Path | str | None) -> list[Path | None]:
        """Files and folders that the claim names and a run reads, and some others."""
        named = [*others, self.model if is_local(self.model) else None, *self.data.reads()]
        return [None if name is None else Path(name) for name in [*named, *paths_in([self.parameters, self.public])]]

    def parameter_warnings(self) -> list[str]:
        """What is easily misread in the parameters, a sentence each; nothing here depends on the data."""
        return []

    def assumptions(self) -> list[str]:
        """What bounds on a run rest on besides its events, a sentence each. Public, and the same before and after it.

        Whatever of it is checked during the run is in the ledger, too, such as whether rows were verified.
        """
        raise NotImplementedError

    def unstated(self) -> list[Unstated]:
        """Those assumptions that nobody states: of a procedure that ran elsewhere."""
        return []

    def estimate_reasons(self) -> list[str]:
        """Why upper bounds on a run are estimates; empty if they are certified."""
        return []

    def stated(self) -> dict[str, Any]:
        """What files of the claim say, a verdict reads and a run does not compute, by name, in JSON types.

        Fields of the claim itself are in the run's description already.
        """
        return {}

    def basis(self) -> Basis:
        """What bounds on a run rest on, as it is written to the ledger when the run begins."""
        return Basis(tuple(self.assumptions()), tuple(self.estimate_reasons()), stated=self.stated())

    def located(self, folder: Path) -> Self:
        """The claim with relative paths resolved against the folder of its file."""
        located: Self = with_paths(self, lambda path: folder / path)
        changes: dict[str, Any] = {"data": self.data.located(folder)}
        if self.model != "builtin" and (folder / self.model).is_dir():
            changes["model"] = str(folder / self.model)
        return located.model_copy(update=changes)

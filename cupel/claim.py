"""Claims: what is asserted, read from a YAML file and validated before anything else happens."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model, model_validator

from cupel.accounting import guarantees
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.errors import InputError
from cupel.mechanisms.private_inference import PrivateInference


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not a truth value")
    return value


def _delta(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"n\^-\d+(\.\d+)?", value.strip()):
        return value.strip()
    return _no_bool(value)


Number = Annotated[float, BeforeValidator(_no_bool)]
Delta = Annotated[
    float | Annotated[str, Field(pattern=r"^n\^-\d+(\.\d+)?$")],
    BeforeValidator(_delta),
    Field(description="a number in (0, 1), or `n^-1.1` with the public number of records n"),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BuiltinData(_Strict):
    """Data that ship with the tool: `keys` (made-up 5-digit keys) or `notes` (RAND Health Insurance Experiment)."""

    source: Literal["builtin"]
    name: Literal["keys", "notes"]


class FileData(_Strict):
    """A JSON Lines, CSV or Parquet file; the path is relative to the claim file."""

    source: Literal["file"]
    path: Path
    text: str = Field("text", description="column that holds the text")
    label: str | None = Field(None, description="column that holds the label, if labels are used")
    id: str | None = Field(None, description="column with a stable id; else the content's hash is the id")
    user: str | None = Field(None, description="column that names the user, for unit `user`")


class DatasetData(_Strict):
    """A data set of the library `datasets`: a hub id or a local folder, which is relative to the claim file."""

    source: Literal["dataset"]
    name: str = Field(description="a hub id, a folder written by `save_to_disk`, or a folder of data files")
    split: str = "train"
    subset: str | None = Field(None, description="the configuration, where there are several")
    text: str = Field("text", description="column that holds the text")
    label: str | None = Field(None, description="column that holds the label, if labels are used")
    id: str | None = Field(None, description="column with a stable id; else the content's hash is the id")
    user: str | None = Field(None, description="column that names the user, for unit `user`")


class PureDPClaim(_Strict):
    type: Literal["pure_dp"]
    epsilon: Number


class ApproxDPClaim(_Strict):
    type: Literal["approx_dp"]
    epsilon: Number
    delta: Delta


class ZCDPClaim(_Strict):
    type: Literal["zcdp"]
    rho: Number


class GDPClaim(_Strict):
    type: Literal["gdp"]
    mu: Number


class RDPClaim(_Strict):
    type: Literal["rdp"]
    alpha: Number
    epsilon: Number


class ExPostClaim(_Strict):
    type: Literal["ex_post"]
    epsilon: Number


class SecretProtectionClaim(_Strict):
    type: Literal["secret_protection"]
    p: Number
    r: Number


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


_SOURCES = ("builtin", "file", "dataset")


class Public(_Strict):
    """What is public by assumption. Everything else that is read off the data is paid for."""

    records: int = Field(ge=1, description="the number n of privacy units that may be known to everyone")
    labels: list[str] = Field([], description="the set of labels")


KEYS = 100_000
"""How many different 5-digit keys there are."""

# The fields of the mechanism that a claim states elsewhere: under `public`, or at its top level.
_STATED_ELSEWHERE = {"records", "labels", "adjacency", "unit", "variant"}


def _parameters_model() -> type[BaseModel]:
    """The claim's `parameters`, one field for each of the mechanism's own, so that the two cannot drift apart."""
    hints = typing.get_type_hints(PrivateInference)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(PrivateInference):
        if field.name not in _STATED_ELSEWHERE:
            kind = hints[field.name]
            if kind in (int, float):
                kind = Annotated[kind, BeforeValidator(_no_bool)]
            fields[field.name] = (kind, ... if field.default is dataclasses.MISSING else field.default)
    return create_model("PrivateInferenceParameters", __base__=_Strict, **fields)


PrivateInferenceParameters: Any = _parameters_model()

AuditName = Literal["leave_one_out", "reconstruction", "record_replay"]


class Claim(_Strict):
    """A privacy claim, or the same file without `guarantee` as the configuration of a run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    data: Annotated[BuiltinData | FileData | DatasetData, Field(discriminator="source")]
    unit: str = Field("record", description="record, user, group(k) or secret")
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    mechanism: Literal["private_inference"]
    variant: Literal["sound", "as_published"] = "sound"
    parameters: PrivateInferenceParameters
    model: str = Field("builtin", description="builtin, a local folder, or a hub id")
    public: Public
    guarantee: GuaranteeClaim | None = None
    audits: list[AuditName] = []

    @model_validator(mode="after")
    def _consistent(self) -> Claim:
        self.generator()
        if self.guarantee is not None:
            self.claimed()
        if len(set(self.audits)) != len(self.audits):
            raise ValueError("audits: each audit is named once")
        if isinstance(self.data, BuiltinData) and self.data.name == "keys":
            most = KEYS // 2 if "reconstruction" in self.audits else KEYS
            if self.public.records > most:
                raise ValueError(
                    f"public.records: there are {KEYS} keys of five digits, and reconstruction holds half of them out, "
                    f"so at most {most}, not {self.public.records}"
                )
        adding = [name for name in self.audits if name != "record_replay"]
        if adding and self.adjacency is not Adjacency.ADD_REMOVE:
            raise ValueError(
                f"audits: {' and '.join(adding)} play at adjacency add_remove and say nothing of a claim at "
                f"{self.adjacency}; leave them out"
            )
        if "record_replay" in self.audits and self.parameters.aggregate == "none":
            raise ValueError("audits: record_replay compares a run with its events, and aggregate none has no event")
        return self

    def claimed(self) -> guarantees.Guarantee:
        """The claimed guarantee, with δ worked out from the public number of records."""
        if self.guarantee is None:
            raise InputError(f"{self.name}: a claim needs a `guarantee`, for example {{type: pure_dp, epsilon: 1.0}}")
        values = self.guarantee.model_dump(exclude={"type"})
        if isinstance(values.get("delta"), str):
            values["delta"] = float(self.public.records) ** float(values["delta"][2:])
        guarantee: guarantees.Guarantee = _GUARANTEES[self.guarantee.type](**values)
        return guarantee

    def generator(self) -> PrivateInference:
        """The mechanism that the claim describes."""
        return PrivateInference(
            **self.parameters.model_dump(),
            records=self.public.records,
            labels=tuple(self.public.labels),
            adjacency=self.adjacency,
            unit=Unit.parse(self.unit),
            variant=self.variant,
        )

    def described(self) -> dict[str, Any]:
        """The claim in JSON types, for a report: files and folders by name only, because a path tells of a machine."""
        body: dict[str, Any] = self.model_dump(mode="json", exclude_none=True)
        if isinstance(self.data, FileData):
            body["data"]["path"] = self.data.path.name
        if isinstance(self.data, DatasetData) and (Path(self.data.name).is_absolute() or Path(self.data.name).is_dir()):
            body["data"]["name"] = Path(self.data.name).resolve().name
        if Path(self.model).is_absolute() or Path(self.model).is_dir():
            body["model"] = Path(self.model).resolve().name
        for name in ("centres", "embedder"):
            if (value := body["parameters"].get(name)) and (Path(value).is_absolute() or Path(value).exists()):
                body["parameters"][name] = Path(value).resolve().name
        return body


class _UniqueKeyLoader(yaml.SafeLoader):
    """`yaml.SafeLoader` that refuses a key given twice instead of keeping the last one in silence."""


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not a word", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def read_claim(path: Path) -> Claim:
    """Reads and validates a claim file. Relative paths in it are taken from the file's own folder.

    Raises:
        InputError: one line that names the file, the key, what was given and what is allowed.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; a claim is a YAML file") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}: not valid YAML{where}: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a claim is a YAML mapping with the keys {', '.join(Claim.model_fields)}")
    try:
        claim = Claim.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{path}: {one_line(error)}") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply; a claim has three levels") from None
    return _with_absolute_paths(claim, path.parent)


def _with_absolute_paths(claim: Claim, folder: Path) -> Claim:
    changes: dict[str, Any] = {}
    if isinstance(claim.data, FileData):
        changes["data"] = claim.data.model_copy(update={"path": folder / claim.data.path})
    if isinstance(claim.data, DatasetData) and (folder / claim.data.name).is_dir():
        changes["data"] = claim.data.model_copy(update={"name": str(folder / claim.data.name)})
    if claim.model != "builtin" and (folder / claim.model).is_dir():
        changes["model"] = str(folder / claim.model)
    parameters = {"centres": claim.parameters.centres and str(folder / claim.parameters.centres)}
    if (folder / claim.parameters.embedder).is_dir():
        parameters["embedder"] = str(folder / claim.parameters.embedder)
    changes["parameters"] = claim.parameters.model_copy(update=parameters)
    return claim.model_copy(update=changes)


def one_line(error: ValidationError) -> str:
    """The first error of a validation in one line, and how many more there are."""
    first, *rest = error.errors(include_url=False)
    # The names of union members and of the discriminated types are not keys of the file.
    keys = [str(part) for part in first["loc"] if part not in _GUARANTEES and str(part) not in _SOURCES]
    where = ".".join(keys)
    message = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown key; known are {', '.join(_known_keys(first['loc'])) or 'none'}"
    elif first["type"] == "missing":
        message = "is missing"
    elif first["type"] != "value_error":
        message = f"{message[0].lower()}{message[1:]}, not {str(first['input'])[:80]!r}"
    more = f" (and {len(rest)} more)" if rest else ""
    return " ".join(f"{where + ': ' if where else ''}{message}{more}".split())


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): Claim,
        ("data", "builtin"): BuiltinData,
        ("data", "file"): FileData,
        ("data", "dataset"): DatasetData,
        ("parameters",): PrivateInferenceParameters,
        ("public",): Public,
    }
    guarantee = next((model for model in _guarantee_models() if ("guarantee", _type_of(model)) == location[:-1]), None)
    model = guarantee or models.get(tuple(map(str, location[:-1])))
    return list(model.model_fields) if model else []


def _guarantee_models() -> tuple[type[BaseModel], ...]:
    return (PureDPClaim, ApproxDPClaim, ZCDPClaim, GDPClaim, RDPClaim, ExPostClaim, SecretProtectionClaim)


def _type_of(model: type[BaseModel]) -> str:
    name: str = model.model_fields["type"].annotation.__args__[0]  # type: ignore[union-attr]
    return name


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a claim file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Claim.model_json_schema(),
    }

"""The manifest of `dpassay audit mechanism`: which function of a library is audited, and what it declares."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dpassay.accounting.adjacency import Adjacency
from dpassay.base.errors import InputError, input_errors

Law = Literal["laplace", "gaussian", "discrete_laplace"]
Form = Literal["list", "array", "frame"]

OUTPUT = "output"
"""As `query`: the draw returns noise alone, and the output of the function is the query with this noise."""


class ManifestPart(BaseModel):
    """Part of a manifest; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoiseDraw(ManifestPart):
    """One function of the library that draws noise, and what is declared of all its draws in a call together.

    Attributes:
        draw: ``module:function`` or ``module:Class.method``.
        query: the argument that holds the exact value, to which the draw adds noise. If the draw returns noise alone:
            ``output``, if the function adds it to its output; or ``module:function``, whose last result before the
            draw is the exact value that noise is added to.
        law: of the noise.
        scale: claimed: b of Laplace noise P(x) ∝ exp(−|x|/b), the standard deviation of Gaussian noise.
        scale_argument: in its place, the argument of the draw that holds the scale, where draws have different ones.
        sensitivity: claimed: by how much neighbours can change all queries of a call together, in L1 norm for Laplace
            noise, in L2 norm for Gaussian noise; in multiples of the scale, if an argument holds it.
    """

    draw: str
    query: str
    law: Law
    scale: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    scale_argument: str | None = None
    sensitivity: float = Field(gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check(self) -> NoiseDraw:
        if (self.scale is None) is (self.scale_argument is None):
            raise ValueError("give either scale or scale_argument")
        if self.scale_argument is not None and self.law == "discrete_laplace":
            raise ValueError("scale_argument: is for laplace and gaussian noise")
        return self

    @property
    def compared_scale(self) -> float:
        """The scale of the noise as it is compared: 1 if it is divided by that of its draw."""
        return 1.0 if self.scale is None else self.scale

    @property
    def returns_noise(self) -> bool:
        """Whether the draw returns noise alone."""
        return self.query == OUTPUT or self.follows is not None

    @property
    def follows(self) -> str | None:
        """The function whose last result is the exact value; None if it is found elsewhere."""
        return self.query if ":" in self.query else None


class Manifest(ManifestPart):
    """A manifest.

    Attributes:
        name: of the audit, for its report.
        library: the distribution whose version is reported.
        call: the audited function, ``module:function`` or ``module:Class.method``.
        object: arguments with which the class of a method is called first, for each run anew; None for static methods.
        data_argument: the argument that takes the data; the first one if None.
        arguments: the other arguments, by name.
        tuples: those of them that are lists here, and that the function takes as tuples.
        form: in which the function takes data: a list, a NumPy array, or a pandas DataFrame of rows that are mappings.
        adjacency: of the claim.
        data: the records, numbers or lists of numbers, or mappings.
        neighbors: at least one neighbour of the data.
        releases: functions whose results are released as they are, such as a private choice of columns; on neighbours
            they give the results of the recorded run, and nothing is checked of them.
        noise: all draws of noise.
    """

    name: str = Field(min_length=1)
    library: str = Field(min_length=1)
    call: str
    object: dict[str, Any] | None = None
    data_argument: str | None = None
    arguments: dict[str, Any] = {}
    tuples: list[str] = []
    form: Form = "array"
    adjacency: Literal["add_remove", "replace_one", "zero_out"]
    data: list[Any]
    neighbors: list[list[Any]] = Field(min_length=1)
    releases: list[str] = []
    noise: list[NoiseDraw] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Manifest:
        if len({item.draw for item in self.noise}) < len(self.noise):
            raise ValueError("noise: each draw may be named once")
        if any(item.query == OUTPUT for item in self.noise) and len(self.noise) > 1:
            raise ValueError("noise: query: output needs a single draw")
        if self.object is not None and "." not in self.call.partition(":")[2]:
            raise ValueError(f"object: is for a method, module:Class.method, and the call is {self.call!r}")
        for name in self.tuples:
            if not isinstance(self.arguments.get(name), list):
                raise ValueError(f"tuples: {name!r} is no argument that is a list")
        for number, other in enumerate(self.neighbors):
            change = len(other) - len(self.data)
            allowed = {-1, 1} if self.relation is Adjacency.ADD_REMOVE else {0}
            if change not in allowed:
                words = (
                    "one record more or less than" if self.relation is Adjacency.ADD_REMOVE else "as many records as"
                )
                raise ValueError(
                    f"neighbors: number {number} has {len(other)} records and the data {len(self.data)}; under "
                    f"{self.adjacency} a neighbour has {words} the data"
                )
        return self

    def passed(self) -> dict[str, Any]:
        """The arguments as the function takes them."""
        return {name: tuple(item) if name in self.tuples else item for name, item in self.arguments.items()}

    @property
    def relation(self) -> Adjacency:
        """The neighbouring relation."""
        return Adjacency(self.adjacency)


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """A manifest, and the SHA-256 of its file.

    Raises:
        InputError: one line that names the key, if the file is no manifest.
    """
    with input_errors(f"{path}: "):
        content = path.read_bytes()
    try:
        body = yaml.safe_load(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f"line {line + 1}: "
        raise InputError(f"{path}: {where}is not valid YAML") from None
    if not isinstance(body, dict):
        raise InputError(f"{path}: a manifest is a mapping with the keys {', '.join(Manifest.model_fields)}")
    try:
        return Manifest.model_validate(body), hashlib.sha256(content).hexdigest()
    except ValidationError as error:
        raise InputError(f"{path}: {_first_error(error)}") from None


def _first_error(error: ValidationError) -> str:
    """The first mistake in one line; a misspelt key goes before the key that is then missing."""
    details = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    item = details[0]
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        kind: type[BaseModel] = NoiseDraw if item["loc"][0] == "noise" else Manifest
        near = difflib.get_close_matches(str(item["loc"][-1]), kind.model_fields, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"allowed are {', '.join(kind.model_fields)}"
        return f"{where}: is no key of a manifest; {hint}"
    if item["type"] == "missing":
        return f"{where}: is missing"
    message = item["msg"].removeprefix("Value error, ")
    given = "" if item["type"] == "value_error" else f", not {item['input']!r}"
    return f"{where}: {message[0].lower()}{message[1:]}{given}" if where else message


def located(named: str, key: str) -> tuple[Any, str, Callable[..., Any]]:
    """What ``module:Class.method`` names: the object that holds it, its name there, and the function.

    Importing a module runs its code.

    Raises:
        InputError: if there is no such module or function.
    """
    module, separator, path = named.partition(":")
    if not separator or not module or not path:
        raise InputError(f"{key}: must be module:function or module:Class.method, not {named!r}")
    try:
        holder: Any = importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{key}: cannot import {module!r} ({error}); install the library into the environment of dpassay"
        ) from None
    *classes, name = path.split(".")
    for item in classes:
        holder = _attribute(holder, item, named, key)
    function = _attribute(holder, name, named, key)
    if not callable(function):
        raise InputError(f"{key}: {named} is no function")
    return holder, name, function


def _attribute(holder: Any, name: str, named: str, key: str) -> Any:
    if not hasattr(holder, name):
        near = difflib.get_close_matches(name, [item for item in dir(holder) if not item.startswith("__")], 1)
        raise InputError(f"{key}: {named}: there is no {name!r}{f'; did you mean {near[0]!r}?' if near else ''}")
    return getattr(holder, name)


def as_data(records: list[Any], form: Form) -> Any:
    """A copy of the records in the form that the function takes."""
    if form == "list":
        return [dict(item) if isinstance(item, Mapping) else item for item in records]
    if form == "array":
        import numpy as np

        return np.array(records)
    try:
        import pandas as pd
    except ImportError:
        raise InputError("form: frame needs pandas in the environment of the library") from None
    return pd.DataFrame(records)


def event_multiplier(draw: NoiseDraw, adjacency: Adjacency) -> float:
    """The noise multiplier of the event: scale over one contribution, of which an exchange of records changes two."""
    contributions = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    multiplier = draw.compared_scale * contributions / draw.sensitivity
    assert math.isfinite(multiplier)
    return multiplier

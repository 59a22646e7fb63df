"""Classes of the floors below as parts of a document: `Bound`, `AuditResult`, `Rate`, … themselves.

Their fields, types, defaults and descriptions are read off the classes, so that the schema of a document lists none of
them a second time.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import core_schema

from dpassay.accounting import bounds
from dpassay.accounting.adjacency import Unit
from dpassay.audits import detection, result, verdict

Number = Annotated[
    float | Literal["inf", "-inf"],
    BeforeValidator(lambda value: bounds.json_number(value) if isinstance(value, float) else value),
    Field(description="a finite number, or an infinity as a string"),
]


@dataclass(frozen=True)
class JsonForm:
    """Validates what the `to_json` of a dataclass writes, and makes the dataclass of it.

    Attributes:
        infinite: the fields whose numbers may be infinite.
        computed: the properties that `to_json` writes besides; when read, they are computed anew.
        in_details: the fields that `to_json` writes into `details`; lists of sentences.
    """

    infinite: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    in_details: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            functools.partial(self._read, kind),
            handler.generate_schema(self._form(kind)),
            serialization=core_schema.plain_serializer_function_ser_schema(kind.to_json),
        )

    def _read(self, kind: type[Any], value: Any, validate: Callable[[Any], BaseModel]) -> Any:
        if isinstance(value, kind):
            return value
        form = validate(value)
        fields = {name: getattr(form, name) for name in form.model_fields_set if name not in self.computed}
        if self.in_details and "details" in fields:
            fields["details"] = dict(fields["details"])
            fields |= {name: _sentences(name, fields["details"].pop(name, [])) for name in self.in_details}
        return kind(**fields)

    @functools.cache  # noqa: B019 - a form for each of a handful of classes
    def _form(self, kind: type[Any]) -> type[BaseModel]:
        """The JSON form of the fields of `kind`."""
        hints, words = get_type_hints(kind), _attributes(kind)
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(kind):
            if field.name in self.in_details:
                continue
            default = ... if field.default is dataclasses.MISSING else field.default
            described = Field(default, description=words.get(field.name))
            fields[field.name] = (self._type(hints[field.name], field.name), described)
        for name in self.computed:
            fields[name] = (self._type(get_type_hints(getattr(kind, name).fget)["return"], name), ...)
        summary = inspect.getdoc(kind) or ""
        return create_model(
            kind.__name__, __config__=ConfigDict(extra="forbid"), __doc__=summary.partition("\n\n")[0], **fields
        )

    def _type(self, hint: Any, name: str) -> Any:
        """What JSON has for a type of Python, validated into that type."""
        number: Any = Annotated[Number, AfterValidator(float)] if name in self.infinite else float
        known: dict[Any, Any] = {
            float: number,
            Unit: Annotated[str, AfterValidator(Unit.parse)],
            bounds.Interval: Annotated[tuple[number, number], AfterValidator(_interval)],
            bounds.Bound: Bound,
            result.Rate: Rate,
        }
        if hint in known:
            return known[hint]
        kinds = tuple(part if part is ... else self._type(part, name) for part in get_args(hint))
        if not kinds or get_origin(hint) is Literal:
            return hint
        return Union[kinds] if get_origin(hint) is UnionType else get_origin(hint)[kinds]  # noqa: UP007


def _interval(ends: tuple[float, float]) -> bounds.Interval:
    return bounds.Interval(*ends)


def _sentences(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(sentence, str) for sentence in value):
        raise ValueError(f"details.{name} must be a list of sentences, not {value!r}")
    return tuple(value)


def _attributes(kind: type[Any]) -> dict[str, str]:
    """What the docstring of a class says of each of its attributes."""
    outcome = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", inspect.getdoc(kind) or "", flags=re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in outcome}


Bound = Annotated[bounds.Bound, JsonForm(infinite=("value", "delta", "at", "interval", "ceiling"))]
Risk = Annotated[bounds.Risk, JsonForm(infinite=("value", "interval"))]
Rate = Annotated[result.Rate, JsonForm(computed=("rate", "interval"))]
AuditResult = Annotated[result.AuditResult, JsonForm(in_details=("contradictions",))]
Detectable = Annotated[detection.Detectable, JsonForm(computed=("chance",))]
Missing = Annotated[verdict.Missing, JsonForm(infinite=("best_upper", "claimed"))]

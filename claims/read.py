"""Reads claims from YAML files and validates them."""

from __future__ import annotations

import datetime
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ValidationError

from dpassay.base.errors import InputError
from dpassay.base.validate import did_you_mean
from dpassay.claims.base import Claim

LARGEST_FILE = 2**18
"""Bytes of a claim file; a claim has a few thousand."""

_DEEPEST = 20  # levels of a claim file; a claim has four


class _UniqueKeyLoader(yaml.SafeLoader):
    """`yaml.SafeLoader` that refuses duplicate keys, aliases and deep nesting.

    `yaml.SafeLoader` keeps the last of duplicate keys without an error, and a few lines of aliases expand to billions
    of values.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """One value with all that it contains."""
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias is not read; write the value out", mark)
        if self._depth >= _DEEPEST:
            raise yaml.composer.ComposerError(None, None, f"more than {_DEEPEST} levels; a claim has four", mark)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _unique_mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not a string", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def content_of(path: Path) -> dict[str, Any]:
    """The content of a claim file.

    Raises:
        InputError: one line that names the file, if it is no mapping in YAML.
    """
    try:
        data = yaml.load(_text(path), Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except InputError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{path}: cannot be read: {reason}; name a claim, a YAML file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; a claim is a YAML file") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}: not valid YAML{where}: {getattr(error, 'problem', None) or error}") from None
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        raise InputError(
            f"{path}: holds a value that YAML cannot read, such as a date that is in no calendar or a number of "
            "thousands of digits; put a text between quotes"
        ) from None
    if not isinstance(data, dict):
        what = "is empty" if data is None else "is no claim"
        raise InputError(f"{path}: {what}; a claim is a YAML mapping with the keys {', '.join(Claim.model_fields)}")
    return data


def validated(data: dict[str, Any], where: str, kinds: Mapping[str, type[Claim]]) -> Claim:
    """The claim of a file with this content; error messages begin with `where`.

    Raises:
        InputError: one line that names the key, what was given and what is allowed.
    """
    if "mechanism" not in data:
        raise InputError(f"{where}mechanism: is missing")
    model = kinds.get(str(data["mechanism"]))
    if model is None:
        given, (*others, last) = str(data["mechanism"])[:80], kinds
        known = f"{', '.join(others)} or {last}"
        raise InputError(f"{where}mechanism: must be {known}, not {given!r}{did_you_mean(given, kinds)}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{where}{_one_line(error, model)}") from None
    except RecursionError:
        raise InputError(f"{where}is nested too deeply; a claim has three levels") from None


def _text(path: Path) -> str:
    """The content of a claim file.

    Raises:
        InputError: if the file is too large to be a claim.
        OSError, UnicodeDecodeError: if it cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise InputError(f"{path}: is larger than {LARGEST_FILE} bytes, which no claim is; name a claim, a YAML file")
    return content.decode("utf-8")


def _one_line(error: ValidationError, model: type[BaseModel]) -> str:
    """The first error of a validation in one line, and the number of others.

    An unknown key that resembles a missing one comes first: the missing one is misspelt.
    """
    result = error.errors(include_url=False)
    missing = [str(item["loc"][-1]) for item in result if item["type"] == "missing"]
    first, *rest = sorted(
        result,
        key=lambda item: item["type"] != "extra_forbidden" or not did_you_mean(str(item["loc"][-1]), missing),
    )
    keys, known = _place(first["loc"], model)
    context = first.get("ctx", {})
    words = re.findall(r"'([^']*)'", str(context.get("expected_tags") or context.get("expected") or ""))
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        keys.append(str(context["discriminator"]).strip("'"))
    where = ".".join(keys)
    message = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown key; known are {', '.join(known) or 'none'}{did_you_mean(keys[-1], known)}"
    elif first["type"] in ("missing", "union_tag_not_found"):
        message = "is missing"
    elif first["type"] == "union_tag_invalid":
        tag = str(context["tag"])[:80]
        message = f"must be one of {', '.join(words)}, not {tag!r}{did_you_mean(tag, words)}"
    elif first["type"] == "string_type" and isinstance(first["input"], (bool, int, float, datetime.date)):
        kind = {bool: "true or false", int: "a number", float: "a number"}.get(type(first["input"]), "a date")
        message = f"must be text, and YAML reads this as {kind}; put it between quotes"
    elif first["type"] not in ("value_error", "own_message"):
        value = str(first["input"])[:80]
        given = "" if "secrets" in keys else f", not {value!r}{did_you_mean(value, words)}"  # it may spell a secret
        message = f"{message[0].lower()}{message[1:].partition(', unable to')[0]}{given}"
    more = f" (and {len(rest)} more)" if rest else ""
    return " ".join(f"{where + ': ' if where else ''}{message}{more}".split())


def _place(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[list[str], list[str]]:
    """The keys that lead to an error, and the known keys of the mapping where it is.

    Pydantic's locations also contain the names of members of unions, which are not keys of the file.
    """
    keys: list[str] = []
    known: list[str] = []
    here: list[Any] = [model]
    for part in location:
        models = [kind for kind in here if isinstance(kind, type) and issubclass(kind, BaseModel)]
        known = [name for kind in models for name in kind.model_fields]
        of_field = [kind.model_fields[str(part)].annotation for kind in models if str(part) in kind.model_fields]
        tagged = [kind for kind in models if part in (_tag(kind), kind.__name__)]
        if tagged and len(models) > 1:
            here = tagged
            continue
        if isinstance(part, int) or of_field or part == location[-1]:
            keys.append(str(part))
        here = [inner for kind in of_field or here for inner in _inside(kind)]
    return keys, known


def _tag(model: type[BaseModel]) -> str | None:
    """The value of a model's first field that must be given and has only one; it identifies the model in a union."""
    for field in model.model_fields.values():
        values = typing.get_args(field.annotation) if typing.get_origin(field.annotation) is typing.Literal else ()
        if field.is_required() and len(values) == 1:
            return str(values[0])
    return None


def _inside(kind: Any) -> list[Any]:
    """The types of a value of this type, or of the values it contains."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType, Annotated, list, tuple):
        return [inner for part in typing.get_args(kind) for inner in _inside(part)]
    return [kind]

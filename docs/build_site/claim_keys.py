"""The reference of a claim's keys, from the JSON Schema that `dpassay schema claim` prints and the claims that ship."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from build_site.pages import ROOT
from dpassay.claims.base import Claim
from dpassay.generators.registry import CLAIMS, json_schema

INTRODUCTION = """# Claim keys

A claim is a YAML file with these keys. `dpassay schema claim` prints them as a JSON Schema, by which editors complete
and check claims. Paths are relative to the claim file. Examples are from the claims in `examples/claims/`, or defaults.
"""

_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true` or `false`"}
_LIMITS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}

Schema = Mapping[str, Any]
Keys = tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A part of a claim that has keys.

    Attributes:
        path: the keys that lead there, such as ``("parameters", "writing")``.
        name: of its class.
        schema: of its class.
        claims: content of the claims that ship and may have it.
    """

    path: Keys
    name: str
    schema: Schema
    claims: Sequence[Schema]

    @property
    def title(self) -> str:
        """How the reference calls it: its path, and the key that selects it among others."""
        selected = [f"`{key}: {value['const']}`" for key, value in self.keys.items() if "const" in value]
        where = f"`{'.'.join(self.path)}`" if self.path else "Every claim"
        own = [key for key in ("list", "pattern", "quantile", "presidio") if key in self.schema.get("required", ())]
        selected += [f"`{key}`" for key in own if self.path[-1] == "secrets"]
        return ", ".join([where, *selected]) if self.path and self.path[-1] != "parameters" else where

    @property
    def keys(self) -> dict[str, Schema]:
        """The schema of each key."""
        return dict(self.schema.get("properties", {}))


def page() -> str:
    """The reference as a page of the site."""
    result = [INTRODUCTION]
    for heading, parts in chapters():
        result.append(f"## {heading}\n")
        for part in parts:
            result += [] if part.title == heading else [f"### {part.title}\n"]
            result.append(_table(part))
    return "\n".join(result)


@functools.cache
def chapters() -> list[tuple[str, list[Part]]]:
    """All parts of claims with their keys, by chapter: what all claims share, then each mechanism."""
    shipped = [yaml.safe_load(path.read_text("utf-8")) for path in sorted((ROOT / "examples/claims").glob("*.yaml"))]
    shipped += more_claims()
    base, definitions = Claim.model_json_schema(), json_schema()["$defs"]
    written: set[str] = set()
    every = Part((), "Claim", base, shipped)
    sources = {f"data of {name}": definitions[kind.__name__]["properties"]["data"] for name, kind in CLAIMS.items()}
    tables = Part((), "Claim", {"properties": sources}, shipped)
    shared = [every, *_nested(every, json_definitions(), written)]
    shared += [replace(part, path=("data",)) for part in _nested(tables, definitions, written)]
    result = [("Every claim", [part for part in shared if not part.path])]
    result += [
        (f"`{key}`", [part for part in shared if part.path[:1] == (key,)]) for key in ("data", "public", "guarantee")
    ]
    for mechanism, kind in CLAIMS.items():
        claims = [content for content in shipped if content["mechanism"] == mechanism]
        schema = definitions[kind.__name__]
        own = {key: value for key, value in schema["properties"].items() if value != base["properties"].get(key)}
        whole = Part((), kind.__name__, {**schema, "properties": own}, claims)
        parts = _nested(whole, definitions, set(written))
        result.append((f"`mechanism: {mechanism}`", [_narrowed(part, base["$defs"]["Public"]) for part in parts]))
    return result


def more_claims() -> list[Schema]:
    """Claims beside those that ship, for examples of keys that none of those has."""
    return list(yaml.safe_load_all((Path(__file__).with_name("more_claims.yaml")).read_text("utf-8")))


def _narrowed(part: Part, public: Schema) -> Part:
    """What is public for one mechanism, without the keys that are as for all."""
    if part.path != ("public",):
        return part
    own = {key: value for key, value in part.keys.items() if value != public["properties"].get(key)}
    return replace(part, schema={**part.schema, "properties": own})


def _nested(part: Part, definitions: Schema, written: set[str]) -> Iterator[Part]:
    """The parts within a part, that of each class once."""
    for key, value in part.keys.items():
        for name in _references(value):
            schema = definitions[name]
            if name not in written and "properties" in schema:
                written.add(name)
                inner = Part((*part.path, key), name, schema, part.claims)
                yield inner
                yield from _nested(inner, definitions, written)


def _references(value: Any) -> Iterator[str]:
    """The classes that a schema names."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for key, inner in value.items():
            if key != "discriminator":
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _table(part: Part) -> str:
    lines = ["| key | meaning | value | default | example |", "| --- | --- | --- | --- | --- |"]
    for key, value in part.keys.items():
        cells = [f"`{key}`", value["description"], allowed(value), default(part, key), example(part, key)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def default(part: Part, key: str) -> str:
    """The value of a key that is left out."""
    if key in part.schema.get("required", ()):
        return "required"
    value = part.keys[key].get("default")
    if isinstance(value, dict):
        return "of its keys"
    return "none" if value is None else f"`{_written(value)}`"


def allowed(value: Schema) -> str:
    """The type of a key and its range."""
    limits = [f"{words} {value[name]:g}" for name, words in _LIMITS.items() if name in value]
    return " ".join([_kind(value), ", ".join(limits)]).strip()


def _kind(value: Schema) -> str:
    definitions = json_definitions()
    if "const" in value:
        return f"`{_written(value['const'])}`"
    if "enum" in value:
        *first, last = [f"`{_written(item)}`" for item in value["enum"]]
        return f"{', '.join(first)} or {last}" if first else last
    if "$ref" in value:
        referred = definitions[value["$ref"].rpartition("/")[2]]
        return "mapping" if "properties" in referred else _kind(referred)
    kinds = [allowed(item) for item in [*value.get("anyOf", ()), *value.get("oneOf", ())] if item.get("type") != "null"]
    if kinds:
        return " or ".join(dict.fromkeys(kinds))
    if value.get("type") == "array":
        return f"list of {_kind(value['items'])}" if "items" in value else "list"
    if value.get("format") == "path":
        return "path"
    return _TYPES.get(value.get("type", ""), "mapping")


@functools.cache
def json_definitions() -> Schema:
    """The classes of all parts of claims."""
    return {**Claim.model_json_schema()["$defs"], **json_schema()["$defs"]}


def example(part: Part, key: str) -> str:
    """A line of YAML with the key, of a claim that ships, or with its default; empty if there is none."""
    value, definitions = part.keys[key], json_definitions()
    if key == "parameters" or any("properties" in definitions[name] for name in _references(value)):
        return "below"
    for content in part.claims:
        for found in _at(content, part.path):
            if key in found and _belongs(found, part):
                return f"`{key}: {_written(found[key])}`"
    usual = value.get("const", value.get("default"))
    return "" if usual in (None, [], "") else f"`{key}: {_written(usual)}`"


def _belongs(found: Schema, part: Part) -> bool:
    """Whether content of a claim is of the class of a part: all its keys are, and those with one value have it."""
    fixed = {key: value["const"] for key, value in part.keys.items() if "const" in value}
    same = all(found.get(key, value) == value for key, value in fixed.items())
    return same and (part.path in ((), ("public",)) or set(found) <= set(part.keys))


def _at(content: Any, path: Keys) -> Iterator[Schema]:
    if isinstance(content, list):
        for item in content:
            yield from _at(item, path)
    elif isinstance(content, dict):
        if path:
            yield from _at(content.get(path[0]), path[1:])
        else:
            yield content


def _written(value: Any) -> str:
    """A value in one line of YAML."""
    if isinstance(value, str):
        return yaml.safe_dump(value, allow_unicode=True, width=10_000).removesuffix("\n...\n").strip()
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return f"{value:.1f}"
    return (
        yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000).removesuffix("\n...\n").strip()
    )

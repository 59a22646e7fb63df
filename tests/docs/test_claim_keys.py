"""The reference of a claim's keys is complete: meaning, range, default and example of each, and the ranges are true."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from build_site import claim_keys
from build_site.claim_keys import Part, chapters, more_claims

from dpassay.base.errors import InputError
from dpassay.generators.registry import CLAIMS, json_schema, make_claim

PARTS = [part for _, parts in chapters() for part in parts]
UNLIMITED = {"slot_threshold", "coefficient", "threshold"}
"""Numbers that may be any."""


def numbers(value: Mapping[str, Any]) -> bool:
    return any(kind.get("type") in ("integer", "number") for kind in (value, *value.get("anyOf", ())))


def limits(value: Mapping[str, Any]) -> dict[str, float]:
    names = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    return {name: kind[name] for kind in (value, *value.get("anyOf", ())) for name in names if name in kind}


def test_every_key_says_what_it_means_and_every_number_its_range() -> None:
    """So the schema for editors does, from which the reference is made."""
    for name, kind in json_schema()["$defs"].items():
        for key, value in kind.get("properties", {}).items():
            assert len(value.get("description", "")) > 5 or key == "parameters", f"{name}.{key} lacks a description"
            assert "None" not in value["description"], f"{name}.{key}: a claim file has no None"
            assert not {"ge", "gt", "le", "lt"} & {word for part in value.get("anyOf", ()) for word in part}
            if numbers(value) and key not in UNLIMITED:
                assert limits(value), f"{name}.{key} lacks a range"


def test_every_key_is_in_the_reference_with_an_example() -> None:
    written = {(part.name, key) for part in PARTS for key in part.keys}
    definitions = json_schema()["$defs"]
    claims = {kind.__name__ for kind in CLAIMS.values()}
    of_all = {key for name, key in written if name in ("Public", "Claim")}
    for name, kind in definitions.items():
        for key in kind.get("properties", {}):
            assert (name, key) in written or ((name in claims or name.endswith("Public")) and key in of_all), (
                name,
                key,
            )
    text = claim_keys.page()
    for part in PARTS:
        for key in part.keys:
            example = claim_keys.example(part, key)
            assert example, f"{part.title}: {key} has no example; add a claim to more_claims.yaml"
            assert f"| `{key}` |" in text
            if example != "below":
                assert list(yaml.safe_load(example.strip("`"))) == [key]


@pytest.mark.parametrize("content", more_claims(), ids=lambda content: content["name"])
def test_claims_of_examples_are_valid(content: dict[str, Any]) -> None:
    assert make_claim(content).name == content["name"]


def outside(value: Mapping[str, Any]) -> Iterator[float]:
    """A value beyond each limit, of the key's type."""
    whole = "number" not in [kind.get("type") for kind in (value, *value.get("anyOf", ()))]
    step = 1 if whole else 1e-9
    for name, limit in limits(value).items():
        beyond = {"minimum": limit - step * max(1.0, abs(limit)), "maximum": limit + step * max(1.0, abs(limit))}
        yield int(beyond.get(name, limit)) if whole else beyond.get(name, limit)


def places(content: Any, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, dict):
            yield from places(item.get(path[0]), path[1:]) if path else [item]


def valid_claim(part: Part) -> Mapping[str, Any]:
    """A valid claim that has the part."""
    fixed = {key: value["const"] for key, value in part.keys.items() if "const" in value}
    for content in part.claims:
        for at in places(content, part.path):
            own = part.path in ((), ("public",)) or set(at) <= set(part.keys)
            if own and all(at.get(key) == value for key, value in fixed.items()):
                return content
    raise AssertionError(f"no claim has {part.title}")


@pytest.mark.parametrize(
    "part",
    [part for part in PARTS if any(map(limits, part.keys.values()))],
    ids=lambda part: f"{part.name}-{part.claims[0]['mechanism']}",
)
def test_what_is_outside_a_range_is_refused(part: Part) -> None:
    content = valid_claim(part)
    make_claim(content)
    for key, value in part.keys.items():
        for number in outside(value) if limits(value) else ():
            changed = copy.deepcopy(dict(content))
            for at in places(changed, part.path):
                if set(at) <= set(part.keys) or part.path == ("public",):
                    at[key] = number
            with pytest.raises(InputError) as refused:
                make_claim(changed).claimed()
            said = str(refused.value)
            assert re.search(rf"\b{key}\b", said) or (part.path and part.path[-1] in said), f"{key}: {number}: {said}"

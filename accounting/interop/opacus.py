"""States of Opacus' accountants, alone or in checkpoints of PyTorch.

`IAccountant.state_dict()` holds ``history``, a list of (noise multiplier, sample rate, number of steps), and
``mechanism``, the name of the accountant. It records neither the sampler (``poisson_sampling``), nor the neighbouring
relation, nor δ. `PrivacyEngine.save_checkpoint` puts it under ``privacy_accountant_state_dict``. States of this
package's own accountant, ``dpassay``, also hold what was set of ``adjacency``, ``sampler``, ``normalizer`` and
``conditions``.

Opacus divides the noisy sum of a step by int(n · rate) (`PrivacyEngine.make_private`, to version 1.6). Where one record
more changes that number, it changes the scale of the noise. So the neighbouring relation is zero_out unless another is
said, and add_remove has a bound only if the divisor is said to be public.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.interop.conditions import Condition, Normalizer
from dpassay.accounting.interop.expressions import ROUNDED, Expression, Rounded, parsed
from dpassay.accounting.interop.names import left_unread
from dpassay.accounting.interop.state import SampledGaussian, State, Stated
from dpassay.base.former_name import FORMER_NAME

_KEY = "privacy_accountant_state_dict"
_OWN = ("dpassay", FORMER_NAME)
_SET = ("adjacency", "sampler", "normalizer", "conditions")
_ACCOUNTANTS = ("rdp", "gdp", "prv", *_OWN)
_BEGINS = re.compile(r"\s*(OrderedDict\(\s*[\[{]|\{\s*')")
_LONGEST = 200_000
_DEEPEST = 20

AS_SET = (
    "Sampler, neighbouring relation, normalizer and conditions are those that the accountant's attributes were set to: "
    "Opacus does not tell an accountant what it does."
)
"""The assumption of states that hold such attributes."""


def recognize(content: Any) -> State | None:
    """The state in the content of a file; None if there is none."""
    if not isinstance(content, Mapping):
        return None
    beside = set(content) - {_KEY} if _KEY in content else set()
    content = content.get(_KEY, content)
    if not isinstance(content, Mapping) or "history" not in content or "mechanism" not in content:
        return None
    history, mechanism = content["history"], content["mechanism"]
    if not isinstance(history, list) or mechanism not in _ACCOUNTANTS:
        raise ValueError(
            "looks like the state of an accountant of Opacus, but history must be a list, and mechanism one of "
            + ", ".join(_ACCOUNTANTS)
        )
    parts = tuple(_step(entry, index) for index, entry in enumerate(history))
    state = state_of(parts, recorded(content) if mechanism in _OWN else Stated(), mechanism)
    unread = beside | set(content) - {"history", "mechanism", *(_SET if mechanism in _OWN else ())}
    return dataclasses.replace(state, remarks=left_unread(unread, ()))


def found_text(text: str) -> State | None:
    """The state in the ``repr`` of a state; None if the text is none."""
    if _BEGINS.match(text) is None:
        return None
    expression = parsed(text, "the state of an accountant of Opacus", longest=_LONGEST, deepest=_DEEPEST)
    state = recognize(_plain(expression, expression.tree))
    if state is None or not expression.is_rounded:
        return state
    return dataclasses.replace(state, notes=(*state.notes, ROUNDED), exact=False)


def _plain(expression: Expression, node: ast.expr) -> Any:
    """What an expression of dictionaries, lists and numbers holds; None for everything else."""
    if (number := expression.number(node)) is not None:
        return number
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_plain(expression, item) for item in items]
        case ast.Call(func=ast.Name(id="OrderedDict"), args=[ast.Dict() as content], keywords=[]):
            return _plain(expression, content)
        case ast.Call(func=ast.Name(id="OrderedDict"), args=[ast.List(elts=pairs)], keywords=[]):
            return _dictionary([tuple(each.elts) if isinstance(each, ast.Tuple) else () for each in pairs], expression)
        case ast.Dict(keys=keys, values=values):
            return _dictionary(list(zip(keys, values, strict=True)), expression)
    return None


def _dictionary(pairs: list[Any], expression: Expression) -> dict[str, Any]:
    results = {pair[0].value: _plain(expression, pair[1]) for pair in pairs if _is_item(pair)}
    if len(results) != len(pairs):
        raise ValueError("has a key twice in one dictionary of its text, or one that is no text")
    return results


def _is_item(pair: Any) -> bool:
    return len(pair) == 2 and isinstance(pair[0], ast.Constant) and isinstance(pair[0].value, str)


def state_of(parts: tuple[SampledGaussian, ...], set_to: Stated, mechanism: str) -> State:
    """The state of an accountant of Opacus, with what this package's own was set to."""
    return State(
        library="Opacus",
        what=f"the state of Opacus' {mechanism} accountant",
        parts=parts,
        adjacency=set_to.adjacency,
        sampler=set_to.sampler,
        normalizer=set_to.normalizer,
        holds=set_to.conditions | {Condition.RUN},
        default_adjacency=Adjacency.ZERO_OUT,
        default_normalizer=Normalizer.UNKNOWN,
        notes=() if set_to == Stated() else (AS_SET,),
    )


def recorded(content: Mapping[str, Any]) -> Stated:
    """What a state of this package's accountant says was set."""
    conditions = content.get("conditions", [])
    if not isinstance(conditions, list):
        raise ValueError("conditions must be a list of names of conditions")
    adjacency, sampler, normalizer = (content.get(key) for key in ("adjacency", "sampler", "normalizer"))
    return Stated.of(adjacency=adjacency, sampler=sampler, normalizer=normalizer, conditions=conditions)


def _step(entry: Any, index: int) -> SampledGaussian:
    is_triple = isinstance(entry, list | tuple) and len(entry) == 3
    entry = _worst(*entry) if is_triple else ()
    numbers = [item for item in entry if isinstance(item, int | float) and not isinstance(item, bool)]
    if len(numbers) != 3:
        raise ValueError(
            f"history[{index}] must be three numbers: noise multiplier, sample rate, number of steps; save them as "
            "numbers of Python, such as json.dumps(accountant.state_dict(), default=float)"
        )
    noise, rate, steps = numbers
    try:
        if steps != int(steps):
            raise ValueError("the number of steps must be whole")
        return SampledGaussian(float(noise), float(rate), int(steps))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"history[{index}]: {error}") from None


def _worst(noise: Any, rate: Any, steps: Any) -> tuple[Any, Any, Any]:
    """A step with the end of numbers that were rounded at which it costs most."""
    noise = max(noise.lower, min(0.0, noise.upper)) if isinstance(noise, Rounded) else noise
    return noise, min(rate.upper, max(1.0, rate.lower)) if isinstance(rate, Rounded) else rate, steps

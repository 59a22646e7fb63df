"""States of Opacus' accountants, alone or in checkpoints of PyTorch.

`IAccountant.state_dict()` holds ``history``, a list of (noise multiplier, sample rate, number of steps), and
``mechanism``, the name of the accountant. It records neither the sampler (``poisson_sampling``), nor the neighbouring
relation, nor δ. `PrivacyEngine.save_checkpoint` puts it under ``privacy_accountant_state_dict``. States of this
package's own accountant, ``cupel``, also hold ``adjacency`` and ``sampler`` if they were set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.interop.state import SampledGaussian, Sampler, State

_KEY = "privacy_accountant_state_dict"
_OWN = "cupel"
_ACCOUNTANTS = ("rdp", "gdp", "prv", _OWN)
_RELATIONS = tuple(relation.value for relation in Adjacency if relation is not Adjacency.SECRET)

AS_SET = (
    "Records were sampled as the accountant's attribute sampler says, poisson unless it was set: Opacus does not tell "
    "an accountant how it samples."
)
"""The assumption of states that hold a sampler."""


def found(content: Any) -> State | None:
    """The state in the content of a file; None if there is none.

    Raises:
        ValueError: one line, if there is one with other content than Opacus writes.
    """
    if not isinstance(content, Mapping):
        return None
    content = content.get(_KEY, content)
    if not isinstance(content, Mapping) or "history" not in content or "mechanism" not in content:
        return None
    history, mechanism = content["history"], content["mechanism"]
    if not isinstance(history, list) or mechanism not in _ACCOUNTANTS:
        raise ValueError(
            "looks like the state of an accountant of Opacus, but history must be a list, and mechanism one of "
            + ", ".join(_ACCOUNTANTS)
        )
    adjacency, sampler = recorded(content) if mechanism == _OWN else (None, None)
    return State(
        library="Opacus",
        what=f"the state of Opacus' {mechanism} accountant",
        parts=tuple(_step(entry, place) for place, entry in enumerate(history)),
        adjacency=adjacency,
        sampler=sampler,
        notes=() if sampler is None else (AS_SET,),
    )


def recorded(content: Mapping[str, Any]) -> tuple[Adjacency | None, Sampler | None]:
    """The neighbouring relation and the sampler in a state of this package's accountant; None where it has none.

    Raises:
        ValueError: one line, if one is no known word.
    """
    adjacency, sampler = content.get("adjacency"), content.get("sampler")
    return (
        None if adjacency is None else Adjacency(validate.one_of(_RELATIONS, adjacency=adjacency)),
        None if sampler is None else Sampler(validate.one_of(tuple(Sampler), sampler=sampler)),
    )


def _step(entry: Any, place: int) -> SampledGaussian:
    is_triple = isinstance(entry, list | tuple) and len(entry) == 3
    numbers = [one for one in entry if isinstance(one, int | float) and not isinstance(one, bool)] if is_triple else []
    if len(numbers) != 3:
        raise ValueError(
            f"history[{place}] must be three numbers: noise multiplier, sample rate, number of steps; save them as "
            "numbers of Python, such as json.dumps(accountant.state_dict(), default=float)"
        )
    noise, rate, steps = numbers
    try:
        if steps != int(steps):
            raise ValueError("the number of steps must be whole")
        return SampledGaussian(float(noise), float(rate), int(steps))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"history[{place}]: {error}") from None

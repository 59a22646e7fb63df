"""States of Flower's accountant, `flwr.supercore.privacy_accounting.RdpAccountant.state_dict()`, as JSON.

Unlike others it records nearly everything: the neighbouring relation, the sampling method, the number of clients and δ.
Its unit is a client with all of its records.

Its strategies take a fixed number of clients in each round (`dp_fixed_clipping.py` of Flower 1.42.0). One client more
then changes which others are in it. So a state "no-amplification" has no bound at add-or-remove-one, unless it is
stated that the clients of a round were chosen independently of who else is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.interop.conditions import Sampler
from dpassay.accounting.interop.names import left_unread
from dpassay.accounting.interop.state import SampledGaussian, State
from dpassay.base import validate

_VERSION = 1
_RELATIONS = {"add-or-remove-one": Adjacency.ADD_REMOVE, "replace-one": Adjacency.REPLACE_ONE}
_SAMPLERS = {"poisson": Sampler.POISSON, "without-replacement": Sampler.FIXED, "no-amplification": Sampler.UNKNOWN}
_READ = {"schema_version", "backend", "config", "compositions"}
_READ_OF_CONFIG = {"target_delta", "population_size", "neighboring_relation", "sampling_method"}


def recognize(content: Any) -> State | None:
    """The state in JSON content; None if there is none."""
    if not isinstance(content, Mapping) or not {"schema_version", "backend", "compositions"} <= set(content):
        return None
    if (content["schema_version"], content["backend"]) != (_VERSION, "rdp"):
        raise ValueError(
            "is a state of Flower's accountant of another version; schema_version 1 of backend rdp is known"
        )
    try:
        state = _state(content["config"], content["compositions"])
        unread = {*(set(content) - _READ), *(set(content["config"]) - _READ_OF_CONFIG)}
        return dataclasses.replace(state, remarks=left_unread(unread, ()))
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise ValueError(
            "looks like a state of Flower's accountant, but lacks a field or has one of another type"
        ) from None


def _state(config: Mapping[str, Any], compositions: Any) -> State:
    relation, method = config["neighboring_relation"], config["sampling_method"]
    validate.one_of(tuple(_RELATIONS), neighboring_relation=relation)
    validate.one_of(tuple(_SAMPLERS), sampling_method=method)
    delta = float(validate.open_probability(target_delta=config["target_delta"]))
    clients = validate.integer(minimum=1, population_size=config["population_size"])
    notes = ["A unit is a client with all of its records, and each client's update was clipped as a whole."]
    if _RELATIONS[relation] is Adjacency.REPLACE_ONE:
        notes.append(
            "Flower's strategies add noise relative to the clipping norm. Its own ε at replace-one takes it as "
            "relative to the sensitivity of an exchange, which is twice that norm."
        )
    return State(
        library="Flower",
        what="the state of Flower's accountant",
        parts=tuple(_part(item, clients) for item in list(compositions)),
        adjacency=_RELATIONS[relation],
        delta=delta,
        sampler=_SAMPLERS[method],
        records=clients,
        unit=Unit("user"),
        notes=tuple(notes),
    )


def _part(composition: Mapping[str, Any], clients: int) -> SampledGaussian:
    event, count = composition["event"], validate.integer(minimum=1, count=composition["count"])
    noise = float(validate.positive(noise_multiplier=event["noise_multiplier"]))
    size = validate.integer(minimum=1, maximum=clients, sample_size=event["sample_size"])
    if event["population_size"] != clients:
        raise ValueError("population_size of an event differs from that of the configuration")
    return SampledGaussian(noise, size / clients, count, size)

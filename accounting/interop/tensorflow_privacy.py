"""The text of TensorFlow Privacy's `compute_dp_sgd_privacy_statement`.

It names numbers of examples, batch size, noise multiplier, epochs and δ, and says that it does not know how examples
were sampled: it gives one ε with each example once an epoch, and one for Poisson sampling.
"""

from __future__ import annotations

import math
import re

from cupel.accounting import validate
from cupel.accounting.interop.state import SampledGaussian, State

_NUMBER = r"([\d.]+(?:e[-+]?\d+)?)"
_FIRST = re.compile(
    rf"DP-SGD performed over (\d+) examples with (\d+) examples per iteration, noise multiplier {_NUMBER} "
    rf"for {_NUMBER} epochs (with|without) microbatching"
)
_DELTA = re.compile(rf"adjacency at delta = {_NUMBER} computed")
_ANSWER = r"Epsilon {}: +(inf|[\d.]+)"
_ONCE = re.compile(_ANSWER.format("with each example occurring once per epoch"))
_POISSON = re.compile(_ANSWER.format(r"assuming Poisson sampling \(\*\)"))
_BEGINS = "DP-SGD performed over"


def found_text(text: str) -> State | None:
    """The state in a statement; None if the text is none.

    Raises:
        ValueError: one line, if it begins like one and lacks a number, or there are several.
    """
    said = " ".join(text.split())
    if not said.startswith(_BEGINS):
        return None
    if said.count(_BEGINS) > 1:
        raise ValueError("holds several statements of TensorFlow Privacy; give each in a file of its own")
    first, delta = _FIRST.match(said), _DELTA.search(said)
    if first is None or delta is None:
        raise ValueError("begins like a statement of TensorFlow Privacy, but lacks one of its numbers")
    examples, batch = int(first[1]), int(first[2])
    validate.integer(minimum=1, examples=examples)
    validate.integer(minimum=1, maximum=examples, examples_per_iteration=batch)
    noise, epochs = float(first[3]), float(first[4])
    with_microbatches = first[5] == "with"
    steps = math.ceil(validate.positive(epochs=epochs) * examples / batch)
    once, poisson = _ONCE.search(said), _POISSON.search(said)
    remark = (
        f"It states ε = {once[1]} with each example once an epoch and {poisson[1]} for Poisson sampling, and does not "
        "say which it was."
        if once and poisson
        else "It states no ε."
    )
    notes = [
        "Where each example is once in each epoch, its add-or-remove-one is what is called zero_out here: an example "
        "that is removed leaves its place empty.",
    ]
    if with_microbatches:
        notes.append("A microbatch is clipped as a whole, so that one example moves it by 2C: the noise counts half.")
    return State(
        library="TensorFlow Privacy",
        what="a statement of TensorFlow Privacy",
        parts=(SampledGaussian(noise / 2 if with_microbatches else noise, batch / examples, steps, batch),),
        delta=float(validate.open_probability(delta=float(delta[1]))),
        records=examples,
        remarks=(remark,),
        notes=tuple(notes),
        exact=not with_microbatches,
    )

"""Statements of TensorFlow Privacy: `compute_dp_sgd_privacy_statement`, and the line that it printed until 2022.

A statement names numbers of examples, batch size, noise multiplier, epochs and δ, and says that it does not know how
examples were sampled: it gives one ε with each example once an epoch, and one for Poisson sampling. Both are those of
an example, at add-or-remove-one. With a limit on the examples of a user it adds values of a user, by group privacy.

A statement is read as a whole: a text with other sentences is refused, since they may say another thing.

The older line, of `compute_dp_sgd_privacy`, has a rate of three digits, noise multiplier, steps, ε and δ. It computes
with Poisson sampling and with microbatches of one example, and says neither.

Source: `privacy/analysis/compute_dp_sgd_privacy_lib.py` of tensorflow-privacy 0.5.1, 0.7.3, 0.8.0, 0.8.7 (the line),
0.8.9, 0.8.11, 0.8.12 and 0.9.0 (statements).
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.conversions import formulas
from dpassay.accounting.interop.conditions import Normalizer
from dpassay.accounting.interop.names import left_unread
from dpassay.accounting.interop.state import SampledGaussian, State
from dpassay.base import validate

_NUMBER = r"(\d+(?:\.\d*)?(?:e[-+]?\d{1,3})?)"
_EPSILON = r"(\d+\.\d+|inf(?: \(\*\*\))?)"
_EPSILONS = (
    rf"Epsilon with each example occurring once per epoch: {_EPSILON} "
    rf"Epsilon assuming Poisson sampling \(\*\): {_EPSILON}"
)
_STATEMENT = re.compile(
    rf"DP-SGD performed over (\d+) examples with (\d+) examples per iteration, noise multiplier {_NUMBER} "
    rf"for {_NUMBER} epochs (with|without) microbatching, and "
    r"(?:no bound on number of|at most (\d+)) examples per user\. "
    r"This privacy guarantee protects the release of all model checkpoints in addition to the final model\. "
    rf"Example-level DP with add-or-remove-one adjacency at delta = {_NUMBER} computed with (RDP|PLD) accounting: "
    rf"{_EPSILONS} (?:"
    r"No user-level privacy guarantee is possible without a bound on the number of examples per user\.|"
    r"User-level DP epsilon computation is not supported for PLD accounting at this time\. "
    r"Use RDP accounting to obtain user-level DP guarantees\.|"
    rf"User-level DP with add-or-remove-one adjacency at delta = {_NUMBER} computed using RDP accounting and group "
    rf"privacy: {_EPSILONS})"
    r"(?: \(\*\) Poisson sampling is not usually done in training pipelines, but assuming that the data was randomly "
    r"shuffled, it is believed (?:that )?the actual epsilon should be closer to this value than the conservative "
    r"assumption of an arbitrary data order\.)?"
    r"(?: \(\*\*\) A finite example-level epsilon implies a finite user-level epsilon at any `max_examples_per_user`, "
    r"but because conversion from example-level to user-level DP is not exact, it is possible for the upper bound on "
    r"the user-level epsilon to still be infinite\.)?"
)
_LINE = re.compile(
    rf"DP-SGD with sampling rate = {_NUMBER}% and noise_multiplier = {_NUMBER} iterated over (\d+) steps satisfies "
    rf"differential privacy with eps = ({_NUMBER}|inf) and delta = {_NUMBER}\.( The optimal RDP order is {_NUMBER}\.)?"
    r"(?: The privacy estimate is likely to be improved by expanding the set of orders\.)?"
)
_GIVEN = (
    "The run was as the text says, which was computed from numbers that somebody gave, and not recorded while training."
)
_BEGINS = ("DP-SGD performed over", "DP-SGD with sampling rate")


def found_text(text: str) -> State | None:
    """The state in a statement; None if the text is none."""
    said = re.sub(r"(?<=[a-z])- (?=[a-z])", "-", " ".join(text.split()))  # lines may be broken at hyphens
    if not said.startswith(_BEGINS):
        return None
    if sum(map(said.count, _BEGINS)) > 1:
        raise ValueError("holds several statements of TensorFlow Privacy; give each in a file of its own")
    if (match := _STATEMENT.fullmatch(said)) is not None:
        return _of_statement(match)
    if (match := _LINE.fullmatch(said)) is not None:
        return _of_line(match)
    raise ValueError(
        "begins like a statement of TensorFlow Privacy, but lacks one of its numbers or has a sentence that the "
        "library does not write; give the whole statement, alone"
    )


def _of_statement(match: re.Match[str]) -> State:
    examples, batch, noise, epochs, microbatching, most, delta, _, once, poisson, of_users, *users = match.groups()
    records = validate.integer(minimum=1, examples=int(examples))
    size = validate.integer(minimum=1, maximum=records, examples_per_iteration=int(batch))
    steps = math.ceil(validate.positive(epochs=float(epochs)) * records / size)
    if of_users is not None and (most is None or of_users != delta):
        raise ValueError("holds values of users that do not go with the rest of a statement of TensorFlow Privacy")
    multiplier = float(noise)
    notes = [_GIVEN]
    if microbatching == "with":
        multiplier /= 2
        notes.append(
            "With microbatching the noise counts half, as one example moves the clipped mean of its microbatch by 2C "
            "at most. An example that is added or removed moves no other example to another microbatch: where batches "
            "are cut into microbatches in order, it moves many, and no bound follows at add_remove."
        )
    return State(
        library="TensorFlow Privacy",
        what="a statement of TensorFlow Privacy",
        parts=(SampledGaussian(multiplier, size / records, steps, size),),
        adjacency=Adjacency.ADD_REMOVE,
        also=(Adjacency.ZERO_OUT, *([Unit("user")] if most == "1" else [])),
        delta=float(validate.open_probability(delta=float(delta))),
        records=records,
        unit=Unit(),
        default_normalizer=Normalizer.UNKNOWN,
        remarks=(
            f"It states ε = {once} with each example once an epoch and {poisson} for Poisson sampling, and does not "
            "say which it was.",
            "Where each example is once in each epoch, its add-or-remove-one is what is called zero_out here: an "
            "example that is removed leaves its place empty.",
            *_of_users(most, *users),
        ),
        notes=tuple(notes),
        exact=microbatching != "with",
    )


def _of_users(most: str | None, once: str | None, poisson: str | None) -> list[str]:
    """What it says of users."""
    if most is None:
        return []
    if most == "1":
        return ["It says that a user has one example at most, so its numbers are those of a user, too."]
    values = "" if once is None else f" for which it states ε = {once} and {poisson} by group privacy,"
    return [
        f"It says that a user has at most {int(most)} examples,{values} and that its other numbers are those of an "
        "example."
    ]


def _of_line(match: re.Match[str]) -> State:
    percent, noise, steps, stated, _, delta, order, _ = match.groups()
    rate = _largest(percent)
    return State(
        library="TensorFlow Privacy",
        what="a line of TensorFlow Privacy's compute_dp_sgd_privacy",
        parts=(SampledGaussian(float(noise), rate, int(steps)),),
        delta=float(validate.open_probability(delta=float(delta))),
        default_adjacency=Adjacency.ZERO_OUT,
        default_normalizer=Normalizer.UNKNOWN,
        stated=None if stated == "inf" else float(stated),
        remarks=left_unread(["optimal_RDP_order"] if order else [], ()),
        notes=(
            _GIVEN,
            f"The rate was printed with three digits, and counts as {rate!r}, the largest that is printed so.",
            "Each microbatch was one example: of larger ones, which the line does not record, one example moves a "
            "clipped mean by twice as much.",
        ),
        exact=False,
    )


def _largest(percent: str) -> float:
    """The largest rate of which a percentage is printed so, with three significant digits."""
    shown = Fraction(percent)
    validate.positive(sampling_rate=float(shown))
    leading = math.floor(math.log10(shown))
    leading += (Fraction(10) ** (leading + 1) <= shown) - (Fraction(10) ** leading > shown)
    return min(1.0, formulas.up((shown + Fraction(10) ** (leading - 2) / 2) / 100))

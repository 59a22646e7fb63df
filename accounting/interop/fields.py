"""What the readers take from files of other libraries, field by field, and which statement of a user contradicts it.

This is the table that `docs/interop.md` shows. Readers name whatever a file holds beside these fields as left unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a library's files.

    Attributes:
        library: which writes it.
        name: of the field, as the library calls it.
        read: what it is read as; "" if it is left unread.
        statement: the user's statement that contradicts it where the two differ: ``adjacency``, ``unit``, ``sampler``,
            ``records`` or ``normalizer``; None if no statement can.
    """

    library: str
    name: str
    read: str
    statement: str | None = None


def _of(library: str, *fields: tuple[str, str] | tuple[str, str, str]) -> tuple[Field, ...]:
    return tuple(Field(library, *one) for one in fields)


FIELDS = (
    *_of(
        "Opacus",
        ("history", "noise multiplier, rate and number of the steps"),
        ("mechanism", "the name of its accountant; bounds do not depend on it"),
        ("adjacency", "the neighbouring relation, in states of `dpassay.opacus_accountant`", "adjacency"),
        ("sampler", "the sampler, likewise", "sampler"),
        ("normalizer", "what a step divides its noisy sum by, likewise", "normalizer"),
        ("conditions", "conditions that hold, likewise"),
    ),
    *_of(
        "dp_accounting",
        ("class_name", "the event"),
        ("noise_multiplier and other numbers", "those of the event"),
        ("PoissonSampledDpEvent", "the sampler", "sampler"),
        ("SampledWithoutReplacementDpEvent", "the sampler", "sampler"),
        ("TruncatedSubsampledGaussianDpEvent", "the sampler", "sampler"),
    ),
    *_of(
        "Flower",
        ("schema_version", "must be 1"),
        ("backend", "must be rdp"),
        ("target_delta", "δ of the guarantee; a bound may be asked for at another"),
        ("population_size", "the number of clients", "records"),
        ("neighboring_relation", "the neighbouring relation", "adjacency"),
        (
            "sampling_method",
            "the sampler; of no-amplification it is unknown, and each client counts in each round",
            "sampler",
        ),
        ("compositions", "noise multiplier, rate and number of the rounds"),
        ("its clients", "the unit is user: a client with all of its records", "unit"),
        ("max_epsilon", ""),
        ("orders", ""),
    ),
    *_of(
        "TensorFlow Privacy",
        ("examples", "the number of records", "records"),
        ("examples per iteration", "the batch size, which gives the rate"),
        ("noise multiplier", "the noise multiplier"),
        ("epochs", "the number of steps, rounded up"),
        ("with microbatching", "half the noise multiplier, with a condition"),
        ("at most examples per user", "a remark; it does not make its numbers those of a user"),
        ("Example-level DP", "the unit is record", "unit"),
        (
            "add-or-remove-one adjacency",
            "add_remove; with each example once per epoch it is what is called zero_out here",
            "adjacency",
        ),
        ("delta", "δ of the guarantee; a bound may be asked for at another"),
        ("accounting", "the name of its accountant; bounds do not depend on it"),
        ("Epsilon, of examples and of users", "a remark"),
        ("sampling rate", "the rate, before 2023: the largest that is printed so"),
        ("eps", "the ε that it states, before 2023"),
        ("optimal RDP order", ""),
    ),
    *_of(
        "jax_privacy",
        ("iterations", "the number of steps"),
        ("expected_participations", "with iterations and bands, the rate"),
        ("strategy", "the number of bands, and the norm of the columns"),
        ("noise_multiplier", "the noise multiplier"),
        ("num_examples", "the number of records; with it the neighbouring relation is zero_out", "records"),
        ("num_examples, or none", "the neighbouring relation: zero_out, or add_remove", "adjacency"),
        ("its batches", "the sampler is poisson", "sampler"),
        ("truncated_batch_size", "the largest batch"),
        ("column_normalize", "the noise that the library scales down"),
        ("l2_clip_norm", "nothing: noise multipliers are relative to it"),
        ("rescale_to_unit_norm", "nothing: noise multipliers are relative to the norm"),
        ("normalize_by", "the divisor is public", "normalizer"),
    ),
    *_of(
        "opake",
        ("process", "the mechanisms, and how often they ran"),
        ("Poisson", "the sampler", "sampler"),
        ("EpsilonBudget.epsilon", "the ε that it states: a target"),
        ("EpsilonBudget.delta", "δ of the guarantee; a bound may be asked for at another"),
        ("budget", ""),
    ),
    *_of(
        "OpenDP",
        ("__function__", "the constructor, one of a table"),
        ("__kwargs__", "its arguments; another than the known ones is refused"),
        ("input_metric", "the neighbouring relation, where it is one of rows or of answers", "adjacency"),
        ("delta", "δ of the guarantee; a bound may be asked for at another"),
        ("__version__", "a note, where it is another than 0.16"),
        ("__module__", ""),
    ),
    *_of(
        "SmartNoise",
        ("steps", "ε and δ of each released column"),
        ("privacy", ""),
        ("tol", ""),
    ),
    *_of(
        "private evolution",
        ("epsilon", "the ε that it states"),
        ("delta", "δ of the guarantee; a bound may be asked for at another"),
        ("noise_multiplier", "the noise multiplier"),
        ("num_iterations", "the number of noisy histograms"),
    ),
    *_of(
        "dpsynth",
        ("epsilon", "the ε that it states"),
        ("delta", "δ of the guarantee; a bound may be asked for at another"),
        ("mechanism", "a note"),
        ("dp_operations", "the noise, or ε and δ, of each operation"),
        ("an exponential mechanism", "the neighbouring relation is add_remove", "adjacency"),
        ("attribute_names", ""),
        ("compressed_attribute_sizes", ""),
        ("round_info", ""),
    ),
    *_of(
        "Safe Synthesizer",
        ("dp_enabled", "whether anything was asked for"),
        ("epsilon", "the ε that it states: a target"),
        ("delta", "δ of the target, unless it is auto"),
        ("per_sample_max_grad_norm", ""),
        ("data", ""),
        ("training", ""),
    ),
)


def table() -> str:
    """The fields as a table in Markdown."""
    rows = ["| library | field | read as | contradicted by another |", "| --- | --- | --- | --- |"]
    for one in FIELDS:
        statement = "–" if one.statement is None else f"`{one.statement}`"
        rows.append(f"| {one.library} | {one.name} | {one.read or 'left unread'} | {statement} |")
    return "\n".join(rows)


def libraries() -> Sequence[str]:
    """The libraries in the order of the table."""
    return tuple(dict.fromkeys(one.library for one in FIELDS))

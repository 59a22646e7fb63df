"""For each field of a library's files that a statement can contradict: a file, what agrees, and what does not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = Path(__file__).parents[1] / "accounting" / "interop" / "files"


@dataclass(frozen=True)
class Row:
    """A field, with a file that has it.

    Attributes:
        library, field: the library, and its name for the field.
        file: a sample's name, or the content of a file.
        statement: the name of the statement.
        agrees: a value that is accepted.
        contradicts: values that are refused.
        elsewhere: other statements, without which the file has no bound.
    """

    library: str
    field: str
    file: str
    statement: str
    agrees: Any
    contradicts: tuple[Any, ...]
    elsewhere: tuple[tuple[str, Any], ...] = ()

    @property
    def content(self) -> str:
        """Of the file."""
        return (
            (FILES / self.file).read_text(encoding="utf-8")
            if "(" not in self.file and "{" not in self.file
            else self.file
        )

    def given(self, value: Any) -> dict[str, Any]:
        """The statements with a value of this one."""
        return {**dict(self.elsewhere), self.statement: value}


def _own(**fields: str) -> str:
    return json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "dpassay", **fields})


_POISSON = "PoissonSampledDpEvent(sampling_probability=0.1, event=GaussianDpEvent(noise_multiplier=2.0))"
_FIXED = (
    "SampledWithoutReplacementDpEvent(source_dataset_size=100, sample_size=10, "
    "event=GaussianDpEvent(noise_multiplier=2.0))"
)
_TRUNCATED = (
    "TruncatedSubsampledGaussianDpEvent(dataset_size=1000, sampling_probability=0.01, truncated_batch_size=30, "
    "noise_multiplier=2.0)"
)
_SHUFFLED = (("sampler", "poisson"),)

ROWS = (
    Row(
        "Opacus",
        "adjacency",
        _own(adjacency="replace_one"),
        "adjacency",
        "replace_one",
        ("add_remove", "zero_out"),
        _SHUFFLED,
    ),
    Row("Opacus", "sampler", _own(sampler="poisson"), "sampler", "poisson", ("fixed", "shuffled", "unknown")),
    Row("Opacus", "normalizer", _own(normalizer="batch"), "normalizer", "batch", ("public", "unknown"), _SHUFFLED),
    Row("dp_accounting", "PoissonSampledDpEvent", _POISSON, "sampler", "poisson", ("fixed", "shuffled", "unknown")),
    Row(
        "dp_accounting",
        "SampledWithoutReplacementDpEvent",
        _FIXED,
        "sampler",
        "fixed",
        ("poisson", "shuffled", "unknown"),
        (("adjacency", "replace_one"),),
    ),
    Row(
        "dp_accounting",
        "TruncatedSubsampledGaussianDpEvent",
        _TRUNCATED,
        "sampler",
        "poisson",
        ("fixed", "shuffled", "unknown"),
    ),
    Row("Flower", "population_size", "flower-poisson.json", "records", 1000, (999, 1001)),
    Row(
        "Flower", "neighboring_relation", "flower-poisson.json", "adjacency", "add_remove", ("replace_one", "zero_out")
    ),
    Row("Flower", "neighboring_relation", "flower-whole.json", "adjacency", "replace_one", ("add_remove", "zero_out")),
    Row("Flower", "sampling_method", "flower-poisson.json", "sampler", "poisson", ("fixed", "shuffled", "unknown")),
    Row(
        "Flower",
        "sampling_method",
        "flower-without_replacement.json",
        "sampler",
        "fixed",
        ("poisson", "shuffled", "unknown"),
    ),
    Row(
        "Flower",
        "sampling_method",
        "flower-no_amplification.json",
        "sampler",
        "unknown",
        ("poisson", "fixed", "shuffled"),
    ),
    Row("Flower", "its clients", "flower-poisson.json", "unit", "user", ("record", "group(3)")),
    Row("TensorFlow Privacy", "examples", "tensorflow-privacy-without.txt", "records", 60_000, (59_999,), _SHUFFLED),
    Row(
        "TensorFlow Privacy", "Example-level DP", "tensorflow-privacy-users.txt", "unit", "record", ("user",), _SHUFFLED
    ),
    Row(
        "TensorFlow Privacy",
        "Example-level DP",
        "tensorflow-privacy-without.txt",
        "unit",
        "record",
        ("user",),
        _SHUFFLED,
    ),
    Row(
        "TensorFlow Privacy",
        "add-or-remove-one adjacency",
        "tensorflow-privacy-users.txt",
        "adjacency",
        "add_remove",
        ("replace_one",),
        _SHUFFLED,
    ),
    Row("jax_privacy", "num_examples", "jax-privacy-split.json", "records", 10_000, (9_999,)),
    Row(
        "jax_privacy",
        "num_examples, or none",
        "jax-privacy-split.json",
        "adjacency",
        "zero_out",
        ("add_remove", "replace_one"),
    ),
    Row(
        "jax_privacy",
        "num_examples, or none",
        "jax-privacy-sgd.json",
        "adjacency",
        "add_remove",
        ("zero_out", "replace_one"),
    ),
    Row("jax_privacy", "its batches", "jax-privacy-sgd.json", "sampler", "poisson", ("fixed", "shuffled", "unknown")),
    Row(
        "jax_privacy",
        "its batches",
        "jax-privacy-truncated.json",
        "sampler",
        "poisson",
        ("fixed", "shuffled", "unknown"),
    ),
    Row("jax_privacy", "normalize_by", "jax-privacy-sgd.json", "normalizer", "public", ("batch", "unknown")),
    Row("opake", "Poisson", "opake-steps.json", "sampler", "poisson", ("fixed", "shuffled", "unknown")),
    Row("OpenDP", "input_metric", "opendp-laplace-sum.json", "adjacency", "add_remove", ("replace_one", "zero_out")),
    Row("OpenDP", "input_metric", "opendp-response.json", "adjacency", "replace_one", ("add_remove", "zero_out")),
    Row("dpsynth", "an exponential mechanism", "dpsynth.json", "adjacency", "add_remove", ("replace_one", "zero_out")),
)

"""The generators that are compared, one row each: their claims, and which parameter is calibrated to the claimed ε.

What a row does not set is as in the ready claim that it names, or the generator's default.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from inputs import LABELS, SECRET
from paths import ROOT

from dpassay.accounting import ApproxDP, calibrate
from dpassay.generators.registry import CLAIMS, make_claim

Parameters = dict[str, Any]

ADJACENCY = "add_remove"
"""Of every claim about records: one record is added or removed."""

LEFT_OUT = {"declared": "describes a procedure that ran elsewhere, and makes nothing itself"}
"""Mechanism → why it is not measured."""


@dataclass(frozen=True)
class Asked:
    """What the parameters of a claim may depend on; all of it is public.

    Attributes:
        scale: of the study.
        kind: of texts, or the table.
        labels: public labels, each with its number of records.
        seed: of public choices.
        epsilon, delta: of the claim.
    """

    scale: Mapping[str, Any]
    kind: str
    labels: Mapping[str, int]
    seed: int
    epsilon: float
    delta: float

    @property
    def documents(self) -> int:
        """Synthetic texts of each label."""
        return int(self.scale["documents"] // max(1, len(self.labels)))


@dataclass(frozen=True)
class Arm:
    """A generator with its settings.

    Attributes:
        name: on the page.
        mechanism: in the registry of generators.
        parameters: of a claim.
        tuned: the parameters that are calibrated, from one number; None if none is.
        decreasing: whether the privacy loss decreases in that number.
        bracket: of the search.
        whole: whether the number is whole.
        guarantee: type of the claim's guarantee, or ``none``.
        minutes: a rough guess of the time of a run, for the estimate before there are results.
    """

    name: str
    mechanism: str
    parameters: Callable[[Asked], Parameters]
    tuned: Callable[[Any], Parameters] | None = None
    decreasing: bool = True
    bracket: tuple[float, float] = (0.05, 200.0)
    whole: bool = False
    guarantee: str = "approx_dp"
    minutes: float = 1.0

    @property
    def of_texts(self) -> bool:
        """Whether it makes texts."""
        return self in TEXT_ARMS

    def content(self, asked: Asked, value: float | None, data: Mapping[str, Any], columns: str | None = None) -> Any:
        """The content of a claim file.

        Args:
            asked: as for the parameters.
            value: of the calibrated number.
            data: the key of that name.
            columns: file of the public schema.
        """
        secret = self.guarantee == "secret_protection"
        parameters = self.parameters(asked) | (self.tuned(value) if self.tuned and value is not None else {})
        public: dict[str, Any] = {"records": asked.scale["records"]}
        if self.of_texts:
            public["labels"] = list(asked.labels)
        if columns is not None:
            public["columns"] = columns
        if self.mechanism == "dataset_vectors" and asked.labels:
            public["records_by_label"] = dict(asked.labels)
        if self.mechanism == "private_inference":
            public["context_tokens"] = asked.scale["context_tokens"]
        return {
            "name": f"{asked.kind}-{self.mechanism}".replace("_", "-"),
            "data": dict(data),
            "mechanism": self.mechanism,
            "parameters": parameters,
            "public": public,
            **({} if secret else {"adjacency": ADJACENCY}),
        }

    def calibrated(self, asked: Asked, columns: str | None = None) -> float | None:
        """The number with which a run is within (ε, δ), by the certified accountant; None if none is calibrated."""
        if self.tuned is None:
            return None
        data = {"source": "file", "path": "none"} if self.of_texts else {"source": "table", "path": "none"}

        def event(value: float) -> Any:
            number = int(value) if self.whole else value
            return make_claim(self.content(asked, number, data, columns)).plan().event

        found = calibrate(
            event,
            ApproxDP(asked.epsilon, asked.delta),
            adjacency=ADJACENCY,
            decreasing=self.decreasing,
            integer=self.whole,
            bracket=self.bracket,
        )
        return int(found.value) if self.whole else float(found.value)


@functools.cache
def _ready(name: str) -> Any:
    return yaml.safe_load((ROOT / "examples" / "claims" / f"{name}.yaml").read_text(encoding="utf-8"))["parameters"]


def ready(name: str) -> Parameters:
    """The parameters of a ready claim."""
    return dict(_ready(name))


def _inference(**changes: Any) -> Callable[[Asked], Parameters]:
    def parameters(asked: Asked) -> Parameters:
        given = {key: asked.scale[key] for key in ("clip", "temperature", "batch_size", "document_tokens")}
        return {"aggregate": "mean", "center": "public", "tokens": 1} | given | changes

    return parameters


def _aug_pe(asked: Asked) -> Parameters:
    rounds = {key: asked.scale[key] for key in ("rounds", "variations")}
    return ready("notes-aug-pe") | rounds | {"synthetic": asked.documents, "seed": asked.seed}


def _vectors(asked: Asked) -> Parameters:
    given = ready("notes-vectors")
    return given | {
        "writing": given["writing"] | {"texts": asked.documents, "coefficient": asked.scale["coefficient"]},
        "seed": asked.seed,
    }


def _vectors_noise(multiplier: float) -> Parameters:
    """The noise of both releases, in the proportion of the ready claim."""
    names = ("noise_multiplier", "shots_noise_multiplier")
    first, second = (ready("notes-vectors")[name] for name in names)
    return dict(zip(names, (multiplier, multiplier * second / first), strict=True))


def _secrets(asked: Asked) -> Parameters:
    """(p, r) with r = e^ε·p + δ: what (ε, δ)-DP makes of a guess that is right with probability p."""
    p = asked.scale["p"]
    r = min(1.0, math.exp(asked.epsilon) * p + asked.delta)
    rounds = {key: asked.scale[key] for key in ("rounds", "variations", "clusters", "examples")}
    sizes = {"synthetic": asked.documents, "seed": asked.seed, "p": p, "r": r}
    return ready("secrets-evolution") | rounds | sizes | {"secrets": [{"pattern": SECRET}]}


def _two_stage(asked: Asked) -> Parameters:
    steps = {key: asked.scale[key] for key in ("batch_size", "steps", "first_steps")}
    return ready("table-two-stage") | steps | {"generation": {"rows": asked.scale["rows"]}, "seed": asked.seed}


def _rows(**changes: Any) -> Callable[[Asked], Parameters]:
    return lambda asked: {"rows": asked.scale["rows"], "seed": asked.seed} | changes


def _noise(multiplier: float) -> Parameters:
    return {"noise_multiplier": multiplier}


_TEXTS = (
    Arm(
        "private inference, mean",
        "private_inference",
        _inference(),
        lambda tokens: {"tokens": tokens},
        decreasing=False,
        bracket=(1, 4096),
        whole=True,
        minutes=1.5,
    ),
    Arm("Aug-PE", "aug_pe", _aug_pe, _noise),
    Arm("dataset vectors", "dataset_vectors", _vectors, _vectors_noise),
    Arm(
        "private inference, median",
        "private_inference",
        _inference(aggregate="median"),
        guarantee="ex_post",
        minutes=1.5,
    ),
    Arm("secret evolution", "secret_evolution", _secrets, guarantee="secret_protection"),
    Arm(
        "private inference, unprotected",
        "private_inference",
        lambda asked: {key: value for key, value in _inference(aggregate="none")(asked).items() if key != "center"},
        guarantee="none",
        minutes=1.5,
    ),
)
_TABLES = (
    Arm("two-stage fine-tuning", "two_stage", _two_stage, _noise, minutes=2.5),
    Arm(
        "AIM",
        "marginals",
        _rows(method="aim"),
        lambda rho: {"rho": rho},
        decreasing=False,
        bracket=(1e-5, 100.0),
        minutes=4.0,
    ),
    Arm(
        "MST",
        "marginals",
        _rows(method="mst"),
        lambda rho: {"rho": rho},
        decreasing=False,
        bracket=(1e-5, 100.0),
        minutes=0.6,
    ),
    Arm("table evolution", "table_evolution", _rows(), _noise, minutes=0.3),
)

TEXT_ARMS: Sequence[Arm] = [arm for arm in _TEXTS if arm.mechanism in CLAIMS]
TABLE_ARMS: Sequence[Arm] = [arm for arm in _TABLES if arm.mechanism in CLAIMS]

MEDIAN, SECRETS, UNPROTECTED = (
    next(arm.name for arm in TEXT_ARMS if arm.guarantee == kind) for kind in ("ex_post", "secret_protection", "none")
)
TOKENS_OF = next(arm for arm in TEXT_ARMS if arm.whole)
"""The arm whose number of tokens the other arms of private inference take."""

ZERO_SHOT, UNIFORM, GUESSED, UNUSED_TEXTS, UNUSED_ROWS = (
    "model without records",
    "uniform rows of the schema",
    "independent public guesses",
    "real texts, unused",
    "real rows, unused",
)
PUBLIC_TEXTS, PUBLIC_ROWS = (ZERO_SHOT,), (UNIFORM, GUESSED)
"""What needs no private record."""


def labels_of(kind: str, records: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The public labels of a kind of texts, with the number of records of each."""
    counted = Counter(label for _, label in records)
    return {label: counted[label] for label in LABELS[kind]}

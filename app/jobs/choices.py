"""What can be had of a claim's generator at a privacy target: choices of parameters, each with its certified bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dpassay.accounting.adjacency import Unit
from dpassay.audits.implications import describe
from dpassay.base import validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.extras import install
from dpassay.base.html_table import html_table
from dpassay.base.number_format import format_duration, format_number, format_upper
from dpassay.base.progress import Progress
from dpassay.claims import read
from dpassay.claims.base import (
    ApproxDPClaim,
    Claim,
    ExPostClaim,
    GDPClaim,
    GuaranteeClaim,
    PureDPClaim,
    RDPClaim,
    SecretProtectionClaim,
    ZCDPClaim,
)
from dpassay.claims.lints import large_delta
from dpassay.generators import registry
from dpassay.generators.base import RunSettings
from dpassay.generators.choices import Choice, ParameterChoices, Unmet, grid
from dpassay.reports.text import SYMBOLS

MAX_SETTINGS = 100

MEASURED = (
    "Times are estimates for this machine, from a short run of the model on made-up data. Loading, embedding and "
    "audits are not part of them."
)

UNKNOWN = "No time is estimated: what the run takes is not known before it."


@dataclass(frozen=True)
class ClaimCalibration:
    """Choices of parameters at which a claim meets a target.

    Attributes:
        name: of the claim.
        guarantee: the target, as a claim says it.
        choices: parameters that meet it, with their bounds.
        unmet: settings with which no value of the parameter that is found meets it.
        assumptions: what the bounds rest on besides the events of a run, sentences.
        doubts: why bounds are estimates, sentences; empty if they are not.
        notes: what to know before one is chosen, sentences.
        written: the parameters as the claim's file writes them.
        seconds: of the run of each choice on this machine, estimated; None if they were not measured.
    """

    name: str
    guarantee: GuaranteeClaim
    choices: tuple[Choice, ...]
    unmet: tuple[Unmet, ...]
    assumptions: tuple[str, ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...]
    written: Mapping[str, Any]
    seconds: tuple[float, ...] | None = None

    @property
    def target(self) -> str:
        """The target in words."""
        return describe(self.choices[0].claim.claimed())

    def sentences(self) -> list[str]:
        """What to know before a choice is made."""
        warned = [warning for choice in self.choices for warning in choice.claim.parameter_warnings()]
        doubts = [f"an estimate: {item}" for item in self.doubts]
        return [*self.notes, *(f"Warning: {item}" for item in dict.fromkeys(warned)), *doubts]

    @property
    def guarantee_line(self) -> str:
        """The guarantee, a line for the file of the claim."""
        return f"guarantee: {_flow(self.guarantee.model_dump())}"

    def parameters_line(self, choice: Choice) -> str:
        """The parameters of a choice, a line for the file of the claim."""
        return f"parameters: {_flow({**self.written, **choice.follows, **choice.parameters})}"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The names of the columns and the cells of a table with a row for each choice."""
        first = self.choices[0]
        sign = SYMBOLS.get(first.bound.quantity, first.bound.quantity)
        columns = [*first.parameters, f"{sign} at most", *first.facts, *(["time"] if self.seconds else [])]
        rows = [
            [
                *map(_flow, choice.parameters.values()),
                format_upper(choice.bound.value),
                *(format_number(value, digits=4) for value in choice.facts.values()),
                *([] if seconds is None else [format_duration(seconds)]),
            ]
            for choice, seconds in self._timed()
        ]
        return columns, rows

    def _timed(self) -> list[tuple[Choice, float | None]]:
        """Each choice with its seconds."""
        return list(zip(self.choices, self.seconds or [None] * len(self.choices), strict=True))

    def to_json(self) -> dict[str, Any]:
        """The choices as plain JSON types."""
        return {
            "name": self.name,
            "guarantee": self.guarantee.model_dump(),
            "choices": [
                {
                    "parameters": dict(choice.parameters),
                    "follows": dict(choice.follows),
                    "bound": choice.bound.to_json(),
                    "beyond": choice.beyond,
                    "facts": dict(choice.facts),
                    **({} if seconds is None else {"seconds": seconds}),
                    "warnings": choice.claim.parameter_warnings(),
                    "yaml": [self.guarantee_line, self.parameters_line(choice)],
                }
                for choice, seconds in self._timed()
            ],
            "unmet": [
                {"parameters": dict(item.parameters), "bound": None if item.bound is None else item.bound.to_json()}
                for item in self.unmet
            ],
            **({"assumptions": list(self.assumptions)} if self.assumptions else {}),
            **({"doubts": list(self.doubts)} if self.doubts else {}),
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        columns, rows = self.table()
        return html_table(columns, rows, f"{self.name}: choices for {self.guarantee_line}")


def calibrate_claim(
    claim: str | Path | Claim,
    *,
    target_epsilon: float | None = None,
    target_rho: float | None = None,
    target_mu: float | None = None,
    target_r: float | None = None,
    delta: float | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    timed: bool = False,
    model: str | None = None,
    device: str = "auto",
    download: bool = False,
    progress: Progress | None = None,
) -> ClaimCalibration:
    """Choices of a claim's parameters, each of which just meets a privacy target.

    What is found, and what is tried for the other parameters, depends on the generator: the number of tokens for
    batches of several sizes, the noise for several numbers of rounds or steps. The bounds are those of a verdict on the
    planned run. No data are read, unless the plan depends on where secrets occur.

    Args:
        claim: or the path of its file.
        target_epsilon: ε of the claim's guarantee, or of (ε, δ)-DP with `delta`.
        target_rho, target_mu: ρ of zCDP, μ of Gaussian DP.
        target_r: the largest probability of guessing a secret after the run, at the claim's p. One target is given; by
            default the claim's own guarantee is the target.
        delta: δ in (0, 1) of `target_epsilon`, or of the claim's own ε; by default the claim's.
        vary: name of a parameter → the values to try for it, in place of those that the generator tries.
        timed: whether the time of each run is estimated, by a short run of the model on made-up data.
        model: a local folder or a hub id, used instead of the claim's model.
        device: ``auto``, ``cpu`` or ``cuda``, where the model runs.
        download: whether a hub id may be fetched.
        progress: where to show progress.

    Raises:
        InputError: if the target does not fit the claim, a parameter is invalid, or no choice meets the target.
    """
    asked = claim if isinstance(claim, Claim) else registry.read_claim(claim)
    written = asked.parameters.model_dump(mode="json", exclude_unset=True)
    if not isinstance(claim, Claim):
        written = read.content_of(Path(claim))["parameters"]
    given = {"epsilon": target_epsilon, "rho": target_rho, "mu": target_mu, "r": target_r}
    guarantee = _guarantee(asked, _checked(given, delta), delta)
    choices = registry.choices(asked.model_copy(update={"guarantee": guarantee}))
    target = choices.changed({})
    basis = target.basis()
    results = list(choices.choose(None if vary is None else _settings(choices, vary)))
    met = tuple(replace(item, bound=basis.under(item.bound)) for item in results if isinstance(item, Choice))
    unmet = tuple(item for item in results if isinstance(item, Unmet))
    if not met:
        raise InputError(_none(describe(target.claimed()), unmet, choices.hint()))
    own = getattr(target.claimed(), "delta", None)
    notes = [*choices.notes(), *(large_delta(own) if own is not None else [])]
    seconds = None
    if timed:
        settings = RunSettings(model=model, device=device, download=download, progress=progress or Progress())
        seconds, said = _seconds(choices, met, settings)
        notes.append(said)
    doubts = basis.estimates
    return ClaimCalibration(
        target.name, guarantee, met, unmet, basis.assumptions, doubts, tuple(notes), written, seconds
    )


def _seconds(
    choices: ParameterChoices[Any], met: Sequence[Choice], settings: RunSettings
) -> tuple[tuple[float, ...] | None, str]:
    """The estimated seconds of the run of each choice, and in a sentence what they are, or why there are none."""
    try:
        with settings.progress.stage("Measuring") as step:
            timer = choices.timer(settings)
            step(1, 1)
    except InputError as error:
        return None, f"No time is estimated: {error}"
    except ModuleNotFoundError as error:
        return None, f"No time is estimated: {error.name} is not installed; generators need {install('generate')}."
    if timer is None:
        return None, UNKNOWN
    return tuple(timer(choice.claim) for choice in met), MEASURED


def varied_values(given: Sequence[str]) -> dict[str, list[Any]]:
    """Name of a parameter → values to try, from texts such as ``rounds=3,5``.

    Raises:
        InputError: if a text has no name or no values, or names one parameter twice.
    """
    results: dict[str, list[Any]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        try:
            parsed = yaml.safe_load(f"[{values}]")
        except (yaml.YAMLError, ValueError, ArithmeticError):  # such as a date that is in no calendar
            parsed = None
        if not equals or not name or not parsed:
            raise InputError(f"--vary {text}: must be the name of a parameter and values, such as batch_size=31,63")
        if name in results:
            raise InputError(f"--vary {name}: is given twice; give all its values together")
        results[name] = parsed
    return results


def _checked(targets: Mapping[str, float | None], delta: float | None) -> dict[str, float]:
    """The target that is given, by name; empty if there is none.

    Raises:
        InputError: if there are several, or one is out of range.
    """
    given = {name: value for name, value in targets.items() if value is not None}
    if len(given) > 1:
        raise InputError("give one of --target-epsilon, --target-rho, --target-mu and --target-r")
    with input_errors():
        for name, value in given.items():
            (validate.probability if name == "r" else validate.positive)(**{f"target_{name}": value})
        if delta is not None:
            validate.open_probability(delta=delta)
    return given


def _guarantee(claim: Claim, given: Mapping[str, float], delta: float | None) -> GuaranteeClaim:
    """The target as a claim says it.

    Raises:
        InputError: if it does not fit the claim.
    """
    own, secret = claim.guarantee, Unit.parse(claim.unit).is_secret
    if given and secret != ("r" in given):
        allowed = "--target-r" if secret else "--target-epsilon, --target-rho or --target-mu"
        raise InputError(f"--target-{next(iter(given))}: does not apply to unit {claim.unit}; give {allowed}")
    if own is None and not given:
        raise InputError(f"{claim.name}: has no guarantee; give --target-epsilon, or --target-r for secrets")
    if delta is not None:
        epsilon = getattr(own, "epsilon", None) if not given else given.get("epsilon")
        if epsilon is None:
            raise InputError("--delta: goes with --target-epsilon, or with a claim of ε; leave it out")
        return ApproxDPClaim(type="approx_dp", epsilon=epsilon, delta=delta)
    match given:
        case {"r": r}:
            p = own.p if isinstance(own, SecretProtectionClaim) else claim.parameters.p
            return SecretProtectionClaim(type="secret_protection", p=p, r=r)
        case {"rho": rho}:
            return ZCDPClaim(type="zcdp", rho=rho)
        case {"mu": mu}:
            return GDPClaim(type="gdp", mu=mu)
        case {"epsilon": epsilon} if own is None:
            return PureDPClaim(type="pure_dp", epsilon=epsilon)
        case {"epsilon": epsilon} if isinstance(own, PureDPClaim | ApproxDPClaim | ExPostClaim | RDPClaim):
            return own.model_copy(update={"epsilon": epsilon})
    if own is None or given:
        raise InputError("--target-epsilon: the claim has a guarantee without ε; give --delta, too")
    for name in ("epsilon", "rho", "mu"):
        if getattr(own, name, None) == 0:
            raise InputError(f"guarantee.{name}: is 0, for which nothing may be released; give --target-{name}")
    return own


def _settings(choices: ParameterChoices[Any], vary: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the given values.

    Raises:
        InputError: if there are none, too many, or values for the parameter that is found.
    """
    search = choices.search(choices.claim)
    if search is not None and search.parameter in vary:
        raise InputError(f"--vary {search.parameter}: this parameter is what is found; vary another one")
    count = math.prod(map(len, vary.values()))
    if not 1 <= count <= MAX_SETTINGS:
        raise InputError(f"--vary: gives {count} combinations of values; give 1 to {MAX_SETTINGS}")
    return grid(**vary)


def _none(target: str, unmet: Sequence[Unmet], hint: str) -> str:
    """That no choice meets the target, and which is nearest."""
    finite = [item for item in unmet if item.bound is not None]
    if not finite:
        return f"no choice is certified to meet {target}: nothing bounds what a run of this claim costs{hint}"
    nearest = min(finite, key=lambda item: item.bound.value)  # type: ignore[union-attr]
    return f"no choice is certified to meet {target}; the nearest is {in_words(nearest)}{hint}"


def in_words(item: Unmet) -> str:
    """The parameters of a setting that does not meet a target, and the bound there."""
    where = ", ".join(f"{name} {_flow(value)}" for name, value in item.parameters.items())
    if item.bound is None:
        return f"{where}, of which no bound is known"
    sign = SYMBOLS.get(item.bound.quantity, item.bound.quantity)
    return f"{where}, with {sign} ≤ {format_upper(item.bound.value)}"


def _flow(value: Any) -> str:
    """A value in YAML, on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=float("inf"), allow_unicode=True)
    return text.removesuffix("...\n").strip()

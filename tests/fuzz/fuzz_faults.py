"""Old faults of the command line, put back one by one: a fuzzer that does not find them finds no new ones either."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzz_runner
from fuzz_runner import Case


@dataclass(frozen=True)
class Fault:
    """An old fault.

    Attributes:
        name: for people.
        commands: beginnings of the names of commands that have it.
        put_back: changes the modules of a forked process.
        concerns: whether a case may show it, so that not all cases are run again.
    """

    name: str
    commands: tuple[str, ...]
    put_back: Callable[[], None]
    concerns: Callable[[Case], bool] = lambda case: True


def _no_levels() -> None:
    import yaml

    from dpassay.claims import read

    read._UniqueKeyLoader.compose_node = yaml.SafeLoader.compose_node  # type: ignore[method-assign]


def _no_values() -> None:
    import yaml

    load = yaml.load

    def loads(*given: Any, **more: Any) -> Any:
        try:
            return load(*given, **more)
        except yaml.YAMLError:
            raise
        except Exception as error:
            raise RuntimeError("was not caught") from error

    yaml.load = loads


def _no_largest_file() -> None:
    from dpassay.claims import read

    read.LARGEST_FILE = 2**40


def _unescaped_refusals() -> None:
    from dpassay.cli import exit_codes

    exit_codes.one_line = lambda text: " ".join(text.split())[:500]  # type: ignore[attr-defined]


def _long_refusals() -> None:
    from dpassay.base import terminal

    terminal.LONGEST = 10**9


def _unescaped_results() -> None:
    from dpassay.base import terminal

    one_line = terminal.one_line("")
    terminal.escaped = lambda text: text + one_line


def _outputs_over_inputs() -> None:
    from dpassay.auditing.canaries import plan
    from dpassay.base import outputs, private_results
    from dpassay.jobs import compare

    for module in (outputs, private_results, plan, compare):
        module.check_output = lambda *given: None  # type: ignore[attr-defined]


def _no_most_slots() -> None:
    from dpassay.mechanisms.private_inference import generator

    generator.MAX_SLOTS = generator.MAX_TOKENS = 10**30


def _no_most_steps() -> None:
    from dpassay.base import validate

    def integer(minimum: int = 0, maximum: int = 0, **named: int) -> int:
        (value,) = named.values()
        if math.isnan(value) or value < minimum:
            raise ValueError("too small")
        return value

    validate.integer = integer


def _no_most_occurrences() -> None:
    from dpassay.jobs import mechanisms

    mechanisms.MAX_OCCURRENCES = 2**127


def _unread_scores() -> None:
    from dpassay.auditing.canaries import bound
    from dpassay.auditing.canaries.files import CanaryScores, PlannedCanaries, ScoredFile
    from dpassay.auditing.files import SCORES, read_sealed

    def unread(entry: dict[str, Any]) -> ScoredFile:
        return ScoredFile.model_construct(None, **entry)

    def read_scores(planned: PlannedCanaries) -> CanaryScores:
        document = read_sealed(planned.folder / SCORES)
        control = document.get("unprotected")
        return CanaryScores.model_construct(
            manifest_sha256=document["manifest_sha256"],
            scorings=tuple(map(unread, document["scorings"])),
            unprotected=control and unread(control),
            sha256=document["sha256"],
        )

    bound.read_scores = read_scores  # type: ignore[attr-defined]


def _no_consent() -> None:
    from dpassay.generators.evolution.claim import EvolutionClaim

    EvolutionClaim.check_allowed = lambda self, allowed: None  # type: ignore[method-assign]


_YAML = ("account", "generate", "assay")


def _changed(*parts: str) -> Callable[[Case], bool]:
    return lambda case: any(part in change for part in parts for change in case.changes)


def _has_a_long_argument(case: Case) -> bool:
    return any(len(word) > fuzz_runner.LONGEST_LINE for word in case.arguments)


FAULTS = (
    Fault("claims may be nested without end", _YAML, _no_levels, _changed("yaml_")),
    Fault("values that YAML cannot read", _YAML, _no_values, _changed("yaml_")),
    Fault("claims of any size", _YAML, _no_largest_file, _changed("argument")),
    Fault("refusals are not escaped", ("",), _unescaped_refusals, _changed("argument", "csv", "json", "yaml")),
    Fault("refusals of any length", ("",), _long_refusals, _has_a_long_argument),
    Fault("results are not escaped", ("audit", "centres", "generate"), _unescaped_results, _changed("argument")),
    Fault("outputs replace inputs", ("centres", "utility", "audit"), _outputs_over_inputs, _changed("output")),
    Fault("any number of slots", _YAML, _no_most_slots, _changed("yaml_")),
    Fault("any number of steps", ("calibrate", "compare"), _no_most_steps, _changed("argument")),
    Fault(
        "any number of occurrences", ("compare secret", "calibrate secret"), _no_most_occurrences, _changed("number")
    ),
    Fault("scores are not read as such", ("audit bound",), _unread_scores, _changed("json_value")),
    Fault("keys are sent anywhere", ("generate",), _no_consent, lambda case: "endpoint.yaml" in case.arguments),
)


def _without(number: int, inputs: Path, top: Path) -> bool:
    """Whether a case has a fault that nobody put back."""
    folder = top / f"without-{number}" / "case"
    folder.mkdir(parents=True)
    outcome = fuzz_runner.run_case(fuzz_runner.prepared(number, inputs, folder), folder)
    shutil.rmtree(folder.parent)
    return bool(outcome.faults)


def find_all(inputs: Path, top: Path, cases: int) -> int:
    """Runs up to ``cases`` cases that concern a fault, with the fault put back, until one shows it.

    The command of a number changes with the list of commands, so cases are counted, not numbers.

    Returns:
        1 if a fault is not found.
    """
    missed = 0
    for fault in FAULTS:
        tried, result = 0, None
        for number in range(100 * cases):
            if tried == cases:
                break
            if not fuzz_runner.command_of(number).name.startswith(fault.commands):
                continue
            folder = top / f"fault-{number}" / "case"
            folder.mkdir(parents=True)
            case = fuzz_runner.prepared(number, inputs, folder)
            if fault.concerns(case):
                tried += 1
                outcome = fuzz_runner.run_case(case, folder, patch=fault.put_back)
                if outcome.faults and not _without(number, inputs, top):
                    result = f"case {number}: {outcome.faults[0]}"
            shutil.rmtree(folder.parent)
            if result:
                break
        missed += result is None
        print(f"{fault.name}: {result or 'NOT FOUND'} ({tried} cases run)", flush=True)
    return 1 if missed else 0

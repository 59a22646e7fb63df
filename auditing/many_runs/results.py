"""The results of runs (``private/results.jsonl``), of which each is kept as soon as it is there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final, NamedTuple

from dpassay.attacks.black_box.output_features import FAILED, Features
from dpassay.auditing.many_runs.audited import AuditedGenerator, now
from dpassay.auditing.many_runs.files import PlannedRuns
from dpassay.auditing.many_runs.plan_content import checked_features
from dpassay.audits.games.many_runs import ManyRuns
from dpassay.audits.games.many_runs_design import GeneratorRun
from dpassay.base import validate
from dpassay.base.errors import InputError, input_errors, naming

RESULTS: Final = "results.jsonl"

ARMS: Final = ("claimed", "unprotected")
"""The generator as it is claimed to be, and with its protection off."""

TRIAL: Final = 2**32 - 1
"""The number of the first run that only tries a generator, and is not counted. Further ones count down from it."""

TRIALS: Final = 3
"""So many times a generator is tried before it counts as one that cannot run."""

_VERSION = 1


class MadeRun(NamedTuple):
    """A run of one of the two generators.

    Attributes:
        arm: ``claimed`` or ``unprotected``.
        run: its place in the audit.
    """

    arm: str
    run: GeneratorRun

    @property
    def is_trial(self) -> bool:
        """Whether it only tries the generator."""
        return TRIAL - TRIALS < self.run.number <= TRIAL

    @property
    def name(self) -> str:
        """Of the run's files."""
        if self.is_trial:
            return f"{self.arm}-trial-{TRIAL - self.run.number + 1}"
        return f"{self.arm}-{self.run.phase}-{self.run.data:02d}-{self.run.number:05d}"

    @property
    def spawn_key(self) -> int:
        """A number that no other run has, from which it has its seed."""
        index = 2 * ARMS.index(self.arm) + (self.run.phase == "test")
        return (index << 48) | (self.run.data << 32) | self.run.number


class Results:
    """The results of runs, appended to ``private/results.jsonl`` as they arrive.

    Args:
        planned: the plan that they belong to.
    """

    def __init__(self, planned: PlannedRuns) -> None:
        self._planned, self._path = planned, planned.private / RESULTS
        self._header = {"runs": _VERSION, "plan": planned.sha256}
        self._file: BinaryIO | None = None
        self._synced = time.monotonic()
        self.generators: dict[str, str] = {}
        self.audited: dict[str, list[AuditedGenerator]] = {}
        self.ended = ""
        self.by_run: dict[MadeRun, dict[str, Features]] = {}
        self.seconds: dict[str, float] = {}
        if self._path.is_file():
            self._whole = self._read()
        else:
            self._whole = 0

    def _read(self) -> int:
        whole = 0
        with input_errors(), self._path.open("rb") as file:
            for number, line in enumerate(file):
                if not line.endswith(b"\n"):
                    break  # a process was killed while it wrote this line; its run is made again
                try:
                    row = json.loads(line)
                    if number == 0:
                        if {key: row[key] for key in self._header} != self._header:
                            raise InputError(f"{self._path}: belongs to another plan; delete it, or put back the plan")
                    elif "generator" in row:
                        self.generators[str(row["arm"])] = str(row["generator"])
                        if "audited" in row:
                            said = AuditedGenerator.model_validate(row["audited"])
                            self.audited.setdefault(str(row["arm"]), []).append(said)
                    elif "ended" in row:
                        self.ended = str(row["ended"])
                    else:
                        made = MadeRun(
                            str(row["arm"]), GeneratorRun(row["phase"], int(row["data"]), int(row["number"]))
                        )
                        if made in self.by_run or not self._asks_for(made):
                            raise ValueError("no run of the plan, or one that is there already")
                        self.by_run[made] = checked_features(
                            row["features"], self._planned.plan.pairs_of(made.run.data)
                        )
                        self._spend(made.arm, validate.non_negative(seconds=float(row.get("seconds", 0.0))))
                except InputError:
                    raise
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                    raise InputError(f"{self._path}: line {number + 1} is not a result; delete the file") from None
                whole += len(line)
        return whole

    def _asks_for(self, made: MadeRun) -> bool:
        """Whether a run may be one of the plan."""
        plan = self._planned.plan
        return (
            made.arm in ARMS
            and made.run.phase in ("pilot", "test")
            and 0 <= made.run.data < len(plan.data_sets) + self._planned.ladder_data_sets
            and 0 <= made.run.number < plan.runs
        )

    @contextlib.contextmanager
    def writing(self) -> Iterator[Results]:
        """Opens the file for new results. A line that was cut off is dropped."""
        with input_errors():
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._file = open(descriptor, "r+b")  # noqa: SIM115 - closed below, where its errors name it
        try:
            self._file.seek(self._whole)
            self._file.truncate()
            if self._whole == 0:
                self._append(self._header)
            yield self
        finally:
            with naming(self._path):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
            self._file = None

    def begin(self, arm: str, generator: str, audited: AuditedGenerator) -> None:
        """Records which generator the runs of an arm are of, with the files that it consists of; refuses another later.

        Raises:
            InputError: if runs of another one were recorded.
        """
        digest = hashlib.sha256(generator.encode()).hexdigest()
        if self.generators.setdefault(arm, digest) != digest:
            raise InputError(
                f"{self._path.parent.parent}: its runs were made by another command, or by files that were changed "
                "since; give the same ones, or plan anew"
            )
        self.audited.setdefault(arm, []).append(audited)
        self._append({"arm": arm, "generator": digest, "audited": audited.model_dump()})

    def end(self) -> None:
        """Records when the last run had ended."""
        self.ended = now()
        self._append({"ended": self.ended})

    def failures(self, arm: str) -> dict[str, dict[str, int]]:
        """How many runs of an arm were made and failed, by phase."""
        counts = {phase: {"made": 0, "failed": 0} for phase in ("pilot", "test")}
        for item, features in self.of(arm).items():
            counts[item.phase]["made"] += 1
            counts[item.phase]["failed"] += bool(features[""].get(FAILED))
        return counts

    def add(self, made: MadeRun, features: dict[str, Features], seconds: float = 0.0) -> None:
        """Appends the result of a run. It is flushed at once, and synced to disk within a second.

        Args:
            made: the run.
            features: of its output.
            seconds: that the generator took; 0 if unknown.
        """
        self.by_run[made] = features
        self._spend(made.arm, seconds)
        self._append({"arm": made.arm, **made.run._asdict(), "features": features, "seconds": round(seconds, 3)})

    def _spend(self, arm: str, seconds: float) -> None:
        self.seconds[arm] = self.seconds.get(arm, 0.0) + seconds

    def _append(self, row: Mapping[str, Any]) -> None:
        assert self._file is not None
        with naming(self._path):
            self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            self._file.flush()
            if time.monotonic() - self._synced > 1:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def of(self, arm: str) -> dict[GeneratorRun, dict[str, Features]]:
        """The results of one arm."""
        return {made.run: features for made, features in self.by_run.items() if made.arm == arm}

    def audit(self, arm: str, *, stop: bool = True) -> ManyRuns:
        """The audit of one arm by its results so far."""
        audit = ManyRuns(self._planned.plan.design(stop=stop))
        for item, features in self.of(arm).items():
            audit.add(item, features)
        return audit

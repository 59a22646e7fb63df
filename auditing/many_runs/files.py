"""The files of an audit by many runs: its plan in a folder, and the data sets."""

from __future__ import annotations

import codecs
import dataclasses
import functools
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.black_box.column_facts import Row
from dpassay.attacks.black_box.neighboring_data import NeighboringData
from dpassay.attacks.black_box.output_events import Event
from dpassay.attacks.black_box.output_features import OutputFeatures
from dpassay.attacks.black_box.own_neighbors import own_neighbors
from dpassay.attacks.black_box.probes import FINDS as PROBE_FINDS
from dpassay.attacks.black_box.probes import MAX_LEVEL, Ladder
from dpassay.attacks.canaries.rows import ColumnRange
from dpassay.auditing.data import Data, write_rows
from dpassay.auditing.files import MANIFEST, PLAN, version_error
from dpassay.auditing.many_runs.own_files import FileRows, copied
from dpassay.auditing.many_runs.plan_content import PlannedDialect, PlannedEvent, PlannedPair, RunsPlan
from dpassay.auditing.many_runs.probes import ladder_rows, marks_of, pair_named, place
from dpassay.audits.games.many_runs_design import MAX_RUNS, ManyRunsDesign
from dpassay.audits.games.many_runs_halving import usual_pilots
from dpassay.audits.games.many_runs_power import Power, detectable_leak, power, power_in_words, runs_needed
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_confidence, format_lower, format_number, format_percent
from dpassay.data.reader import FOUND, FileOptions

DATA: Final = "data"

_BEFORE: Final = PlannedDialect(separator=",", encoding="utf-8", header=True)
"""Of plans of earlier versions."""


@dataclass(frozen=True)
class PlannedRuns:
    """A planned audit in its folder, and what it can show.

    Attributes:
        folder: of the audit.
        plan: its content.
        sha256: hash of ``private/plan.json``.
    """

    folder: Path
    plan: RunsPlan
    sha256: str

    @property
    def ladder_data_sets(self) -> int:
        """The number of data sets that the pairs of ladders may have."""
        return 0 if self.plan.probe is None else 2 * MAX_LEVEL * len(self.plan.probe.ladders)

    @property
    def private(self) -> Path:
        """The private folder."""
        return self.folder / "private"

    def data_file(self, data: int) -> Path:
        """The file of a data set."""
        return data_file(self.folder, data, self.plan.suffix)

    def content(self, data: int) -> bytes:
        """The file of a data set.

        Raises:
            InputError: if it was changed.
        """
        path = self.data_file(data)
        if data >= len(self.plan.data_sets):
            return self._written(data)
        with input_errors():
            content = path.read_bytes()
        self._check_unchanged(data, hashlib.sha256(content).hexdigest())
        return content

    def copy(self, data: int, target: Path) -> None:
        """Copies the file of a data set of the plan, in pieces.

        Raises:
            InputError: if it was changed.
        """
        with input_errors():
            digest = copied(self.data_file(data), target)
        self._check_unchanged(data, digest)

    def _check_unchanged(self, data: int, digest: str) -> None:
        if digest != self.plan.data_sets[data]:
            raise InputError(f"{self.data_file(data)}: was changed since it was planned; put it back, or plan anew")

    def rows(self, data: int) -> Sequence[Row]:
        """The records of a data set; those of a user's own pair are read anew each time.

        Raises:
            InputError: if its file was changed.
        """
        if data >= len(self.plan.data_sets):
            return ladder_rows(data, len(self.plan.data_sets), lambda position: self.ladders[position])
        path = self.data_file(data)
        with input_errors(), path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._check_unchanged(data, digest)
        with input_errors():
            rows = FileRows(path, self._stated)
            return rows if self.plan.own is not None else tuple(rows)

    @property
    def _stated(self) -> FileOptions:
        """How data sets are read."""
        return (self.plan.dialect or _BEFORE).options if self.plan.is_csv else FOUND

    @functools.cached_property
    def ladders(self) -> tuple[Ladder, ...]:
        """The ladders of the probe, with their records.

        Raises:
            InputError: if the file of one was changed.
        """
        plan = self.plan
        return tuple(
            Ladder(
                ladder.name,
                tuple(mark.mark for mark in ladder.marks),
                tuple(self.rows(ladder.data)),
                ladder.filler,
                ladder.levels,
                tuple(ladder.novel),
                tuple(Event(event.feature, event.threshold) for event in ladder.events),
                Adjacency(plan.adjacency),
                Unit.parse(plan.unit).size,
            )
            for ladder in (plan.probe.ladders if plan.probe is not None else ())
        )

    def pair(self, name: str) -> PlannedPair:
        """A pair of the plan or of a ladder."""
        for pair in self.plan.pairs:
            if pair.name == name:
                return pair
        known = next(pair for pair in self.design.possible_pairs if pair.name == name)
        made = pair_named(name, self.ladders)
        return PlannedPair(
            name=name,
            data=known.data,
            neighbor=known.neighbor,
            target=dict(made.target),
            novel=list(made.novel),
            events=[PlannedEvent.model_validate(event, from_attributes=True) for event in made.events],
        )

    def _written(self, data: int) -> bytes:
        """The file of a data set of a ladder, which is written anew from the records of the ladder.

        Raises:
            InputError: if the two of its pair are no neighbours.
        """
        probe, path = self.plan.probe, self.data_file(data)
        assert probe is not None
        at = place(data, len(self.plan.data_sets))
        pair = self.ladders[at.ladder].pair(at.level)
        self._check_neighbors(pair.name, pair.data, pair.neighbor)
        like = self.data_file(probe.ladders[at.ladder].data)
        columns = [ColumnRange(name, "other") for name in pair.target]
        with input_errors():
            write_rows(path, [dict(row) for row in self.rows(data)], Data(like, columns, reading=self._stated))
            return path.read_bytes()

    def _check_neighbors(self, name: str, data: Sequence[Row], neighbor: Sequence[Row]) -> None:
        unit, adjacency, own = Unit.parse(self.plan.unit), Adjacency(self.plan.adjacency), self.plan.own
        if own is not None:
            try:
                again = own_neighbors(data, neighbor, adjacency, unit)
                are = list(again.positions) == own.positions and not again.swapped
            except ValueError:
                are = False
        else:
            are = _are_neighbors(data, neighbor, adjacency, unit.size)
        if not are:
            raise InputError(f"{self.folder}: the data sets of {name} are not neighbours; make a new plan")

    def readings_of(self, output: Path) -> tuple[FileOptions, ...]:
        """How an output may be read: as it itself shows, and if that shows no column of the data, as they are."""
        plan = self.plan
        if not plan.is_csv:
            return (FOUND,)
        dialect = plan.dialect or _BEFORE
        encoding = dialect.encoding if dialect.encoding == "latin-1" and not _is_utf8(output) else None
        separators = (None, dialect.separator)
        return tuple(FileOptions(separator=sign, encoding=encoding, header=plan.header) for sign in separators)

    def features(self) -> OutputFeatures:
        """The features of outputs.

        Raises:
            InputError: if a data set was changed, or two of a pair are no neighbours.
        """
        held = {
            data: self.rows(data) for data in {item for pair in self.plan.pairs for item in (pair.data, pair.neighbor)}
        }
        for pair in self.plan.pairs:
            self._check_neighbors(pair.name, held[pair.data], held[pair.neighbor])
        return OutputFeatures(
            [column.facts for column in self.plan.columns],
            [
                NeighboringData(
                    pair.name,
                    held[pair.data],
                    held[pair.neighbor],
                    pair.target,
                    tuple(pair.novel),
                    tuple(item.event for item in pair.events),
                )
                for pair in self.plan.pairs
            ],
            marks_of(self.ladders),
            lambda name: pair_named(name, self.ladders),
            of_first_plans=self.plan.understood is None,
        )

    @functools.cached_property
    def design(self) -> ManyRunsDesign:
        """The design of the audit."""
        return self.plan.design()

    @functools.cached_property
    def power(self) -> tuple[Power, ...]:
        """What the test shows of leaks of known size."""
        return power(self.design, self.design.usual_rounds, usual_pilots(self.design))

    def words(self) -> list[str]:
        """The plan in sentences."""
        plan, design = self.plan, self.design
        lines = [
            self._about_pairs,
            *self._about_probes,
            f"At most {plan.runs} runs, {self._about_rounds}, at confidence {format_confidence(plan.confidence)}.",
            f"By simulation, {design.usual_rounds} rounds on one pair "
            f"{'refute the claim' if plan.claim else 'show ε > 0'} with this chance, if an event tells D′ from D",
        ]
        lines += [
            f"  {item.leak}: {format_percent(item.chance)}; the bound is {format_lower(item.median)} in the median"
            for item in self.power
        ]
        half = power_in_words(detectable_leak(design, design.usual_rounds, usual_pilots(design)))
        return [*lines, f"{half} Leaks that only other neighbours would reveal are not counted.", *self.warnings]

    @property
    def _about_pairs(self) -> str:
        plan, of = self.plan, f"({self.plan.adjacency}, unit {self.plan.unit})"
        if plan.own is not None:
            return f"One pair of neighbours {of}, your own. {plan.own.in_words(Adjacency(plan.adjacency))}"
        count = len(plan.pairs)
        return f"{count} pair{'s'[: count != 1]} of neighbours {of}: {', '.join(pair.name for pair in plan.pairs)}."

    @property
    def _finds_some_share(self) -> bool:
        """Whether the usual rounds refute the claim with 50 % power if every run on D′ and none on D has the event."""
        design = self.design
        return design.halving or detectable_leak(design, design.usual_rounds, 0).share is not None

    @property
    def _about_rounds(self) -> str:
        """How the runs are used."""
        design = self.design
        if design.halving:
            return (
                f"up to {design.pilots} to choose the pair, and the rest, {2 * design.most_rounds} or more, to test it"
            )
        pilots = f"{design.pilots} for the probe and the others " if design.pilots else ""
        return f"{pilots}in rounds of two, one on D and one on D′"

    @property
    def _about_probes(self) -> list[str]:
        """What the probe looks for, if there is one that has runs."""
        if self.plan.probe is None or not self.design.probe_runs:
            return []
        finds = "; ".join(PROBE_FINDS[ladder.name] for ladder in self.plan.probe.ladders)
        return [f"{self.design.probe_runs} runs of a probe may add pairs that aim at: {finds}."]

    @property
    def warnings(self) -> list[str]:
        """That hardly a column is used, and that no outcome could refute the claim, if that is so."""
        columns = self.plan.columns
        used = [column.name for column in columns if column.kind in ("number", "category", "text")]
        few = [
            f"Warning: of {len(columns)} columns {f'only {used[0]!r}' if used else 'none'} is used; say what the "
            "others hold (--number, --categorical, --text), or how the file is written (--separator)."
        ] * (len(used) < min(len(columns), 2))
        return few + self._about_the_claim

    @property
    def _about_the_claim(self) -> list[str]:
        needed, design = self.runs_needed, self.design
        if design.claim is None:
            return []
        claim = f"ε = {format_number(design.limit)}"
        if needed is None or needed > MAX_RUNS:
            return [f"Warning: no outcome of {MAX_RUNS} runs, the most that are possible, refutes a claim of {claim}."]
        if needed > design.runs:
            return [
                f"Warning: no outcome of {design.runs} runs refutes a claim of {claim}; at least {needed} are needed "
                "(--runs)."
            ]
        search = "Warning: if the search for a pair takes its share of the runs,"
        if design.state(usual_pilots(design)).ceiling(design.usual_rounds) <= design.limit:
            return [f"{search} no outcome of the others refutes a claim of {claim}; plan more runs (--runs)."]
        if not self._finds_some_share:
            return [
                f"{search} the others refute a claim of {claim} in fewer than half of all audits, even if every run on "
                "D′ and none on D shows the record; plan more runs (--runs)."
            ]
        return []

    @property
    def runs_needed(self) -> int | None:
        """A number of runs that the claim needs at least, without those of a search; None if no number would do."""
        return runs_needed(self.design)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON types, without the data."""
        plan, design = self.plan, self.design
        left_out: dict[str, Any] = dict.fromkeys(("seed", "pairs", "columns", "like", "held", "probe"), True)
        body = plan.model_dump(exclude={**left_out, "own": {"positions"}})
        return {
            **body,
            "sha256": self.sha256,
            "pairs": [pair.name for pair in plan.pairs],
            "probes": [ladder.name for ladder in plan.probe.ladders] if plan.probe is not None else [],
            "runs_needed": self.runs_needed if plan.claim else None,
            "power": [dataclasses.asdict(item) for item in self.power],
            "detectable": detectable_leak(design, design.usual_rounds, usual_pilots(design)).to_json(),
        }


def _are_neighbors(data: Sequence[Row], neighbor: Sequence[Row], adjacency: Adjacency, size: int) -> bool:
    """Whether D′ has at most so many records more than D, or as many in the place of others."""
    first, second = (Counter(repr(list(row.items())) for row in rows) for rows in (data, neighbor))
    fewer, more = (first - second).total(), (second - first).total()
    return more <= size and fewer == (more if adjacency is Adjacency.REPLACE_ONE else 0)


def _is_utf8(path: Path) -> bool:
    """Whether a file is UTF-8, or not to be looked at."""
    try:
        with path.open("rb") as file:
            if path.suffix in (".gz", ".zst"):
                return True
            decoder = codecs.getincrementaldecoder("utf-8")()
            for piece in iter(lambda: file.read(1 << 20), b""):
                decoder.decode(piece)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    except OSError:
        return True
    return True


def data_file(folder: Path, data: int, suffix: str) -> Path:
    """Where a data set of an audit is."""
    return folder / "private" / DATA / f"{data:02d}{suffix}"


def read_plan(folder: Path) -> PlannedRuns:
    """The plan of a folder.

    Raises:
        InputError: if the folder holds none, or one of another version.
    """
    path = folder / "private" / PLAN
    if not path.is_file():
        if (folder / "private" / MANIFEST).is_file():
            raise InputError(f"{folder}: holds an audit by canaries; give the command without `runs`")
        raise InputError(f"{folder}: holds no plan of runs; make one with `dpassay audit runs plan … -o {folder}`")
    with input_errors():
        content = path.read_bytes()
    try:
        plan = RunsPlan.model_validate_json(content)
        plan.check()
    except ValidationError as error:
        raise version_error(path, error) from None
    except InputError as error:
        raise InputError(f"{path}: {error}; make a new plan") from None
    except (ValueError, TypeError, LookupError):
        raise InputError(f"{path}: was not written by this version of dpassay; make a new plan") from None
    return PlannedRuns(folder, plan, hashlib.sha256(content).hexdigest())

"""The evolution loop with a toy writer: it climbs, resumes exactly, keeps a journal, and bounds what goes wrong."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpassay.mechanisms.embedding.embedder import Vectors
from dpassay.mechanisms.evolution.journal import Entry, Journal
from dpassay.mechanisms.evolution.loop import ATTEMPTS, EvolutionSettings, Select, SyntheticText, evolve

TARGETS = {"north": (80, 90), "south": (85, 10)}


class Numbers:
    """Texts such as ``x=12 y=34``; a variation moves both numbers a little. It can die, and remembers what it saw."""

    name = fingerprint = "numbers"

    def __init__(self, dies_after: int | None = None) -> None:
        self.dies_after, self.asked, self.seen = dies_after, 0, set[str]()

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        for seed in seeds:
            yield self._written(*np.random.default_rng(seed).integers(0, 60, 2))

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        self.seen.update(texts)
        for text, seed in zip(texts, seeds, strict=True):
            yield self._written(*(point(text) + np.random.default_rng(seed).integers(-9, 10, 2)).clip(0, 99))

    def _written(self, x: int, y: int) -> str:
        if self.asked == self.dies_after:
            raise ConnectionError("the writer died")
        self.asked += 1
        return f"x={x} y={y}"


class Plane:
    """The two numbers of a text, scaled into the unit disc; it remembers what it embedded."""

    name = fingerprint = "plane"
    dimension = 2

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return np.array([point(text) / 150 for text in texts], dtype=np.float32).reshape(-1, 2)


def point(text: str) -> np.ndarray:
    return np.array([int(part.partition("=")[2]) for part in text.split()])


def towards(settings: EvolutionSettings) -> Select:
    """Keeps the candidates nearest to the target of their label."""

    def select(number: int, vectors: Mapping[str | None, Vectors]) -> dict[str | None, list[int]]:
        kept: dict[str | None, list[int]] = {}
        for label, rows in vectors.items():
            target = np.array(TARGETS[label or "north"]) / 150
            kept[label] = np.argsort(((rows - target) ** 2).sum(axis=1), kind="stable")[: settings.synthetic].tolist()
        return kept

    return select


def blindly(settings: EvolutionSettings) -> Select:
    """Keeps the first candidates, whatever they are."""
    return lambda number, vectors: {label: range(settings.synthetic) for label in vectors}


def run(
    settings: EvolutionSettings, path: Path, writer: Numbers | None = None, select: Select | None = None
) -> tuple[SyntheticText, ...]:
    writer, embedder = writer or Numbers(), Plane()
    with Journal(path, settings.about(writer, embedder)) as journal:
        return evolve(settings, writer, embedder, select or towards(settings), journal)


def distance(texts: Sequence[SyntheticText]) -> float:
    """The mean distance to the targets, in units of the numbers."""
    return float(np.mean([np.linalg.norm(point(text.text) - TARGETS[text.label or "north"]) for text in texts]))


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips the wait for the disk, where many runs are made and none is lost to a power cut."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


LABELLED = EvolutionSettings(rounds=3, synthetic=3, variations=2, labels=("north", "south"), seed=5)
AHEAD = EvolutionSettings(rounds=3, synthetic=2, variations=2, lookahead=3, seed=5)


@pytest.mark.parametrize("lookahead", [0, 2])
def test_evolution_moves_candidates_to_the_target_and_chance_does_not(tmp_path: Path, lookahead: int) -> None:
    # Random texts lie in [0, 60)², at least 36 from either target, and variations move by at most 13.
    settings = EvolutionSettings(
        rounds=12, synthetic=10, variations=3, labels=("north", "south"), lookahead=lookahead, seed=1
    )
    evolved = run(settings, tmp_path / "evolved")
    assert [text.label for text in evolved] == ["north"] * 10 + ["south"] * 10
    assert [text.rank for text in evolved] == [*range(10), *range(10)]
    assert distance(evolved) < 8
    assert distance(run(settings, tmp_path / "blind", select=blindly(settings))) > 30


def test_the_result_is_the_last_selection_in_its_order(tmp_path: Path) -> None:
    seen = []

    def select(number: int, vectors: Mapping[str | None, Vectors]) -> dict[str | None, list[int]]:
        seen.append((number, len(vectors[None])))
        return {None: [5, 0, 3]}

    settings = EvolutionSettings(rounds=3, synthetic=3, variations=2, seed=5)
    result = run(settings, tmp_path / "journal", select=select)
    entries = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()[1:]]
    text = {entry["key"]: entry["text"] for entry in entries}
    assert seen == [(0, 6), (1, 9), (2, 9)]
    # Each pool is the kept ones in their order, then two variations of each, parent by parent.
    first = ["5", "0", "3"]
    pool = [*first, *(f"{parent}/1.{v}" for parent in first for v in range(2))]
    second = [pool[5], pool[0], pool[3]]
    pool = [*second, *(f"{parent}/2.{v}" for parent in second for v in range(2))]
    last = [pool[5], pool[0], pool[3]]
    assert [row.text for row in result] == [text[key] for key in last]
    assert [row.round for row in result] == [2, 1, 2]
    assert [row.label for row in result] == [None] * 3


def test_a_writer_sees_nothing_but_what_writers_wrote(tmp_path: Path) -> None:
    writer = Numbers()
    run(LABELLED, tmp_path / "journal", writer)
    written = {json.loads(line)["text"] for line in (tmp_path / "journal").read_text().splitlines()[1:]}
    assert writer.seen
    assert writer.seen <= written


@pytest.mark.usefixtures("no_disk")
@pytest.mark.parametrize("settings", [LABELLED, AHEAD])
def test_a_run_that_dies_at_any_text_goes_on_and_asks_for_no_text_twice(
    tmp_path: Path, settings: EvolutionSettings
) -> None:
    whole = Numbers()
    expected = run(settings, tmp_path / "whole", whole)
    lines = sorted((tmp_path / "whole").read_bytes().splitlines())
    for dies_after in range(whole.asked):
        path = tmp_path / f"dies{dies_after}"
        with pytest.raises(ConnectionError):
            run(settings, path, Numbers(dies_after))
        rest = Numbers()
        assert run(settings, path, rest) == expected
        assert rest.asked == whole.asked - dies_after
        assert sorted(path.read_bytes().splitlines()) == lines


@pytest.mark.usefixtures("no_disk")
@pytest.mark.parametrize("settings", [LABELLED, AHEAD])
def test_a_journal_cut_anywhere_gives_the_same_run(tmp_path: Path, settings: EvolutionSettings) -> None:
    expected = run(settings, tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    cuts = {0, 1, *(cut for end in ends for cut in (end - 9, end - 1, end))}
    for cut in sorted(cuts):
        path = tmp_path / f"cut{cut}"
        path.write_bytes(content[:cut])
        writer = Numbers()
        assert run(settings, path, writer) == expected
        finished = max(0, content[:cut].count(b"\n") - 1)
        assert writer.asked == len(ends) - 1 - finished
        assert path.read_bytes() == content


def test_candidates_are_on_the_disk_before_they_are_selected(tmp_path: Path) -> None:
    lines = []

    def select(number: int, vectors: Mapping[str | None, Vectors]) -> dict[str | None, range]:
        lines.append((tmp_path / "journal").read_bytes().count(b"\n"))
        return {None: range(2)}

    run(AHEAD, tmp_path / "journal", select=select)
    # The first line, 4 random texts, 3 variations of each; then 6 candidates a round, of which 2 stay.
    assert lines == [1 + 4 + 12, 1 + 4 + 12 + 18, 1 + 4 + 12 + 18 + 18]


def test_a_finished_journal_asks_for_nothing_and_embeds_candidates_only(tmp_path: Path) -> None:
    expected, nobody = run(AHEAD, tmp_path / "journal"), Numbers(dies_after=0)
    embedder, steps = Plane(), []
    with Journal(tmp_path / "journal", AHEAD.about(nobody, embedder)) as journal:
        again = evolve(AHEAD, nobody, embedder, towards(AHEAD), journal, lambda *step: steps.append(step))
        keys = len(journal)
    assert again == expected
    assert steps[-1] == (keys, keys)


def test_lookahead_takes_the_mean_of_variations_that_become_children(tmp_path: Path) -> None:
    settings = EvolutionSettings(rounds=2, synthetic=2, variations=3, lookahead=2, seed=3)
    given: list[Vectors] = []

    def select(number: int, vectors: Mapping[str | None, Vectors]) -> dict[str | None, list[int]]:
        given.append(vectors[None])
        return {None: [0, 1]}

    run(settings, tmp_path / "journal", select=select)
    entries = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()[1:]]
    text = {entry["key"]: entry["text"] for entry in entries}
    for candidate in range(6):
        pair = [point(text[f"{candidate}/1.{v}"]) / 150 for v in range(2)]
        np.testing.assert_allclose(given[0][candidate], np.mean(pair, axis=0), atol=2**-23)  # float32 of [0, 1]
    # 6 random texts, 2 variations of each; one more child of the kept; the 8 candidates of round 1 looked ahead twice.
    assert len(entries) == 6 + 12 + 2 + 16 == settings.texts
    assert {entry["key"] for entry in entries if entry["round"] == 1 and entry["variation"] == 2} == {"0/1.2", "1/1.2"}


@pytest.mark.parametrize("settings", [LABELLED, AHEAD])
def test_progress_counts_each_text_once(tmp_path: Path, settings: EvolutionSettings) -> None:
    steps: list[tuple[int, int]] = []
    writer = Numbers()
    with Journal(tmp_path / "journal", {}) as journal:
        evolve(settings, writer, Plane(), towards(settings), journal, lambda *step: steps.append(step))
    assert [done for done, _ in steps] == [*range(1, writer.asked + 1), writer.asked]
    assert {total for _, total in steps[:-1]} == {settings.texts}
    assert steps[-1] == (writer.asked, writer.asked)
    assert writer.asked <= settings.texts


def test_a_text_depends_on_its_label_and_descent_only(tmp_path: Path) -> None:
    def texts(path: Path, settings: EvolutionSettings) -> dict[tuple[str, str], str]:
        run(settings, path)
        entries = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        return {(entry["label"], entry["key"]): entry["text"] for entry in entries}

    few = EvolutionSettings(rounds=1, synthetic=2, variations=2, labels=("south",), seed=5)
    many = EvolutionSettings(rounds=1, synthetic=3, variations=2, labels=("north", "south"), seed=5)
    first, second = texts(tmp_path / "one", few), texts(tmp_path / "other", many)
    assert first.items() <= second.items()
    assert [second["north", str(i)] for i in range(6)] != [second["south", str(i)] for i in range(6)]


class Scripted:
    """Answers what a function of (attempt of this text, text to vary) says; None varies nothing."""

    name = fingerprint = "scripted"

    def __init__(self, answers: Mapping[str, Sequence[str | None]]) -> None:
        self.answers, self.seeds = answers, list[int]()
        self._calls = {"random": 0, "vary": 0}

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        return self._all("random", seeds)

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        return self._all("vary", seeds)

    def _all(self, kind: str, seeds: Sequence[int]) -> Iterator[str | None]:
        self.seeds += seeds
        answer = self.answers[kind][min(self._calls[kind], len(self.answers[kind]) - 1)]
        self._calls[kind] += 1
        for index, _ in enumerate(seeds):
            yield None if answer is None else answer.format(index)


def scripted(path: Path, answers: Mapping[str, Sequence[str | None]]) -> tuple[list[str], Scripted]:
    settings = EvolutionSettings(rounds=2, synthetic=2, variations=2)
    writer = Scripted(answers)
    with Journal(path, {}) as journal:
        result = evolve(settings, writer, Plane(), blindly(settings), journal)
    return [text.text for text in result], writer


def test_an_empty_answer_is_asked_for_again_with_another_seed(tmp_path: Path) -> None:
    texts, writer = scripted(tmp_path / "journal", {"random": ["", " \x00\n", "x={} y=1"], "vary": ["x=9{} y=9"]})
    assert texts == ["x=0 y=1", "x=1 y=1"]
    assert len(writer.seeds) == 3 * 4 + 4
    assert len(set(writer.seeds)) == len(writer.seeds)


@pytest.mark.parametrize("nothing", ["", None])
def test_a_variation_that_stays_empty_is_its_parent(tmp_path: Path, nothing: str | None) -> None:
    texts, writer = scripted(tmp_path / "journal", {"random": ["x={} y=1"], "vary": [nothing]})
    assert texts == ["x=0 y=1", "x=1 y=1"]
    assert len(writer.seeds) == 4 + ATTEMPTS * 4
    entries = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()[1:]]
    assert [entry["text"] for entry in entries[4:]] == ["x=0 y=1"] * 2 + ["x=1 y=1"] * 2


def test_equal_texts_are_one_candidate_while_there_are_enough(tmp_path: Path) -> None:
    sizes = []

    def select(number: int, vectors: Mapping[str | None, Vectors]) -> dict[str | None, range]:
        sizes.append(len(vectors[None]))
        return {None: range(2)}

    settings = EvolutionSettings(rounds=2, synthetic=2, variations=3)
    writer = Scripted({"random": ["x=5 y=5"], "vary": ["x={} y=1"]})
    with Journal(tmp_path / "journal", {}) as journal:
        evolve(settings, writer, Plane(), select, journal)
    # Six equal random texts are two candidates, because fewer cannot be kept; their six variations differ.
    assert sizes == [2, 7]


def test_a_writer_without_any_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="scripted generated no text, only empty or unfinished answers") as raised:
        scripted(tmp_path / "journal", {"random": [""], "vary": [""]})
    assert "\n" not in str(raised.value)
    texts, _ = scripted(tmp_path / "journal", {"random": ["x={} y=1"], "vary": ["x=9{} y=9"]})
    assert texts == ["x=0 y=1", "x=1 y=1"], "a mended writer is asked again"


@pytest.mark.parametrize("chosen", [[0, 0], [0], [0, 1, 2], [0, 4], [-1, 0]])
def test_a_selection_that_is_none_is_refused(tmp_path: Path, chosen: list[int]) -> None:
    settings = EvolutionSettings(rounds=1, synthetic=2, variations=2)
    with pytest.raises(ValueError, match="2 distinct indices of 4 candidates"):
        run(settings, tmp_path / "journal", select=lambda number, vectors: {None: chosen})


@pytest.mark.parametrize(
    ("name", "value"),
    [("rounds", 0), ("synthetic", 0), ("variations", 0), ("lookahead", -1), ("seed", -1), ("rounds", True)],
)
def test_settings_are_checked(name: str, value: int) -> None:
    numbers: dict[str, Any] = {"rounds": 1, "synthetic": 1, "variations": 1, name: value}
    with pytest.raises(ValueError, match=f"{name} must be"):
        EvolutionSettings(**numbers)
    with pytest.raises(ValueError, match="labels must be distinct"):
        EvolutionSettings(rounds=1, synthetic=1, variations=1, labels=("a", "a"))
    EvolutionSettings(rounds=1, synthetic=5_000_000, variations=2)
    with pytest.raises(ValueError, match="at most 10000000 are allowed"):
        EvolutionSettings(rounds=1, synthetic=5_000_001, variations=2)


def test_a_journal_is_for_its_owner_and_for_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    run(AHEAD, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    for other in (
        {**AHEAD.about(Numbers(), Plane()), "seed": 6},
        {**AHEAD.about(Numbers(), Plane()), "run": "another"},
    ):
        with pytest.raises(ValueError, match="was written with other settings") as raised:
            Journal(path, other)
        assert "\n" not in str(raised.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no journal", b"no journal\n", b'{"a": 1}\n{"b": 2}\n', b"\xff\n", b"[1]\n2\n"])
def test_another_file_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="journal") as raised:
        Journal(path, {})
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == content


def test_a_journal_holds_any_text_and_flushes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "journal", []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(path.read_bytes().count(b"\n")))
    hard = 'a "quoted"\nline\u2028end \U0001f600 \\'
    with Journal(path, {"a": 1}) as journal:
        for index in range(200):
            journal.add(Entry("ä", str(index), 0, None, index, hard))
            assert path.read_bytes().count(b"\n") == index + 2, "a killed process loses none"
        assert 1 + 200 - 64 < synced[-1] <= 201
    assert synced[-1] == path.read_bytes().count(b"\n") == 201
    with Journal(path, {"a": 1}) as journal:
        assert [journal.get("ä", str(index)) for index in range(200)] == [hard] * 200
        assert journal.get(None, "0") is None

"""The scoreboard of accountants: answers are read rightly, no question hangs, and the pages are what was measured."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
import scoreboard
import scoreboard_events
import scoreboard_worker as worker
from dp_accounting import dp_event
from paired_times import fill_text
from scoreboard_worker import PEERS, Answer, NotOffered, Question
from tilted import removal_epsilon

from dpassay.accounting import account
from dpassay.accounting.events import from_json, to_json

GAUSSIAN = Question(to_json(dp_event.GaussianDpEvent(2.0)), 1e-5)


def event(own: float = 2.0005, **enclosures: list[float | None]) -> dict[str, Any]:
    """An event whose exact ε is in [1.9999, 2.0001] unless told otherwise."""
    return {
        "enclosures": {"both": [1.9999, 2.0001], **enclosures},
        "answers": {"dpassay": {"epsilon": own, "seconds": 0.01}},
        "question": {"delta": 1e-5},
    }


@pytest.mark.parametrize(
    ("epsilon", "kind", "amount"),
    [
        (1.9, "below", 0.0999 / 1.9999),
        (1.9999 * (1 - 1e-7), "below", 1e-7),
        (1.9999 * (1 - 1e-9), "within", 0.0),  # rounding that a library does not count
        (2.0, "within", 0.0),
        (2.0001, "within", 0.0),
        (2.1, "above", 0.0999 / 2.0001),
        ("inf", "infinite", 0.0),
        ("nan", "refused", 0.0),
    ],
)
def test_an_answer_is_read_against_the_enclosure(epsilon: float | str, kind: str, amount: float) -> None:
    result = scoreboard.reading({"epsilon": epsilon, "seconds": 1.0}, event())
    assert result.kind == kind
    assert result.amount == pytest.approx(amount, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "kind"), [(1.5, "smaller"), (2.0005, "equal"), (2.5, "larger")])
@pytest.mark.parametrize("lower", [None, 1.0])
def test_where_the_truth_is_not_known_the_answer_is_compared_with_ours(
    epsilon: float, kind: str, lower: float | None
) -> None:
    """Without a lower end, and with one so far away that it tells nothing but what is too small."""
    entry = event(both=[lower, 2.0001])
    assert scoreboard.reading({"epsilon": epsilon}, entry).kind == kind
    assert scoreboard.reading({"epsilon": 0.5}, entry).kind == ("smaller" if lower is None else "below")


def test_what_we_do_not_answer_is_said() -> None:
    entry = {"enclosures": {}, "answers": {"dpassay": {"missing": "no"}}}
    assert scoreboard.reading({"epsilon": 1.0}, entry).kind == "alone"


def test_an_answer_for_one_direction_is_compared_with_that_direction() -> None:
    entry = event(remove=[1.4999, 1.5001], add=[1.9999, 2.0001])
    result = scoreboard.reading({"epsilon": 1.5, "direction": "remove"}, entry)
    assert (result.kind, result.text) == ("within", "within†")
    assert scoreboard.reading({"epsilon": 1.5}, entry).kind == "below"


@pytest.mark.parametrize("kind", ["missing", "refused", "hung", "memory"])
def test_what_is_no_answer_is_none(kind: str) -> None:
    result = scoreboard.reading({kind: 60}, event())
    assert result.kind == kind
    assert not result.answers


def test_answers_that_are_better_than_ours_are_found() -> None:
    entry = event()
    entry["answers"] |= {"opake": {"epsilon": 2.0}, "autodp": {"epsilon": 1.0}, "riskcal": {"epsilon": 3.0}}
    assert scoreboard.tighter(entry, "opake") == pytest.approx(0.0005 / 2.0005)
    assert scoreboard.tighter(entry, "autodp") == 0  # below the truth
    assert scoreboard.tighter(entry, "riskcal") == 0


def test_a_lower_end_above_the_truth_is_found() -> None:
    assert scoreboard.lower_end_too_high({"epsilon": 2.2, "lower": 2.1}, event()) == pytest.approx(0.0999 / 2.0001)
    assert scoreboard.lower_end_too_high({"epsilon": 2.2, "lower": 2.0}, event()) == 0
    assert scoreboard.lower_end_too_high({"epsilon": 2.2}, event()) == 0


def test_a_table_marks_what_is_too_small_and_says_how_to_see_it() -> None:
    entry = event() | {"section": "Noise"}
    entry["answers"]["autodp"] = {"epsilon": 1.0, "seconds": 0.002}
    text = scoreboard.kinds({"events": {"a noise": entry}})
    assert text.startswith("| accountant | Noise (1) |\n| --- | --- |\n| dpassay | 1, 2e-04 |\n")
    assert "| autodp | 1, **1 below**<sup>1</sup> |" in text
    assert "1. autodp, a noise: 1, where ε is at least 1.9999. `python benchmarks/scoreboard.py --again" in text


@pytest.mark.parametrize(
    ("work", "seconds", "idle"),
    [(lambda: time.sleep(60), 30.0, 0.2), (lambda: [None for _ in iter(int, 1)], 1.0, 60.0)],
)
def test_what_hangs_is_ended(work: Callable[[], Any], seconds: float, idle: float) -> None:
    """By the clock if it waits, by its processor time if it works: not since the machine is busy."""
    begin = time.monotonic()
    assert worker.in_a_process(work, seconds, idle, 1.0) == {"hung": seconds}
    assert time.monotonic() - begin < 50


def test_a_process_that_dies_is_no_answer() -> None:
    assert worker.in_a_process(lambda: sys.exit(3), 10.0, 60.0, 1.0)["refused"] == "exit"
    assert worker.in_a_process(lambda: {"epsilon": 1.0}, 10.0, 60.0, 1.0) == {"epsilon": 1.0}


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(asked: Question) -> Callable[[], Answer]:
        return lambda: Answer(float(len(bytearray(1 << 31))))

    monkeypatch.setitem(PEERS, "autodp", replace(PEERS["autodp"], ask=ask))
    assert worker.in_a_process(lambda: worker.answer("autodp", GAUSSIAN), 10.0, 60.0, 0.5) == {"memory": True}


@pytest.mark.parametrize(
    ("error", "cell"),
    [
        (NotOffered("no such thing"), {"missing": "no such thing"}),
        (ValueError("not\nthis"), {"refused": "ValueError", "message": "not this"}),
        (ImportError("no library"), {"not_installed": "no library"}),
    ],
)
def test_a_refusal_is_told_from_what_is_not_offered(
    error: Exception, cell: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(asked: Question) -> Callable[[], Answer]:
        raise error

    monkeypatch.setitem(PEERS, "autodp", replace(PEERS["autodp"], ask=ask))
    assert worker.answer("autodp", GAUSSIAN) == cell


def test_a_worker_answers_as_the_library_does() -> None:
    asked = scoreboard.Worker(sys.executable, "dp_accounting_rdp")
    refused = Question(to_json(dp_event.SampledWithReplacementDpEvent(9, 2, dp_event.GaussianDpEvent(2.0))), 1e-5)
    answers = [asked.ask(question) for question in (GAUSSIAN, refused)]
    asked.close()
    assert asked.about["version"]
    assert answers[0]["epsilon"] >= account(from_json(GAUSSIAN.event), adjacency="add_remove", delta=1e-5).value
    assert answers[1]["refused"]


def test_questions_survive_json() -> None:
    """Names are unique, and no two rows ask the same."""
    rows = scoreboard_events.rows()
    texts = [json.dumps(asdict(row.question)) for row in rows]
    assert len({row.name for row in rows}) == len(set(texts)) == len(rows)
    for row, text in zip(rows, texts, strict=True):
        assert Question.from_json(json.loads(text)) == row.question
        assert to_json(from_json(row.question.event)) == row.question.event


def test_a_python_is_for_the_accountants_that_it_names() -> None:
    chosen = scoreboard.interpreters(["opacus=/b", "/a"])
    assert chosen["dpassay"] == sys.executable
    assert chosen["opacus_prv"] == chosen["opacus_rdp"] == "/b"
    assert chosen["autodp"] == "/a"


def test_the_pages_are_what_was_measured() -> None:
    results = scoreboard.load(scoreboard.RESULTS)
    for page, places in scoreboard.pages(results).items():
        text = page.read_text(encoding="utf-8")
        for name in places:
            assert f"<!-- {name} -->\n" in text
        assert fill_text(text, places) == text, f"run python benchmarks/scoreboard.py --docs ({page.name})"


def test_what_was_measured_are_the_questions_of_the_grid() -> None:
    rows = {row.name: row for row in scoreboard_events.rows()}
    for name, entry in scoreboard.load(scoreboard.RESULTS)["events"].items():
        assert entry["question"] == json.loads(json.dumps(asdict(rows[name].question)))


def test_no_answer_of_ours_is_below_a_finer_enclosure() -> None:
    for name, entry in scoreboard.load(scoreboard.RESULTS)["events"].items():
        own, (lower, _) = entry["answers"].get("dpassay", {}), entry["enclosures"].get("both", (None, None))
        assert lower is None or "epsilon" not in own or own["epsilon"] >= lower, name


@pytest.mark.parametrize(
    "name",
    [
        "σ 1, q 0.01, 1,000 steps",
        "small δ, σ 1, q 0.01, 1,000 steps",
        "σ 1.1, q 0.005, 4,000 steps",
        "σ 0.5, q 0.01, 100 steps",
    ],
)
def test_another_calculation_gives_the_enclosed_value(name: str) -> None:
    """Cells of 4e-5 move ε by less than a millionth at these events: cells of 1e-4 differ from them by three."""
    asked = next(row.question for row in scoreboard_events.rows() if row.name == name)
    noise, rate, count = worker.sampled_gaussians(asked)[0]
    lower, upper = worker.enclosures(asked, scoreboard.REFERENCE_WIDTH)["remove"]
    assert lower is not None
    assert upper is not None
    assert lower - 1e-5 <= removal_epsilon(noise, rate, count, asked.delta) <= upper + 1e-5

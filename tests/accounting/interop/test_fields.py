"""What a reader takes from a file, and which statements contradict it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from contradictions import FILES, ROWS, Row

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.interop.conditions import Normalizer, Sampler
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import Reading, State, Stated, check_used, read_as

_WORDS: dict[str, Any] = {
    "adjacency": Adjacency,
    "sampler": Sampler,
    "unit": Unit.parse,
    "normalizer": Normalizer,
    "records": int,
}


def state_of(folder: Path, content: str) -> State:
    (folder / "file").write_text(content)
    return read_state(folder / "file")


def read_under(state: State, words: dict[str, Any]) -> Reading:
    given = Stated(**{name: _WORDS[name](value) for name, value in words.items()})
    reading = read_as(state, given)
    check_used(given, reading.used)
    return reading


def identity(row: Row) -> str:
    return f"{row.library}-{row.field}-{row.agrees}"


@pytest.mark.parametrize("row", ROWS, ids=identity)
def test_what_agrees_with_a_file_is_accepted_and_what_contradicts_it_is_not(tmp_path: Path, row: Row) -> None:
    state = state_of(tmp_path, row.content)
    assert state.library == row.library
    unstated = read_under(state, dict(row.elsewhere))
    assert read_under(state, row.given(row.agrees)).event == unstated.event
    for value in row.contradicts:
        with pytest.raises(ValueError, match=f"the file says {row.statement} [^,]*, not ") as error:
            read_under(state, row.given(value))
        assert "\n" not in str(error.value)
        assert f"not {value};" in str(error.value)


@pytest.mark.parametrize(
    "path", sorted(path for path in FILES.iterdir() if path.name != "answers.json"), ids=lambda path: path.name
)
def test_whatever_a_file_records_is_contradicted_by_another_value(path: Path) -> None:
    """Of every sample: nothing that its reader takes is overruled, whatever the rows of `contradictions` say."""
    try:
        state = read_state(path)
    except ValueError:
        return
    others: dict[str, list[Any]] = {
        "adjacency": [item for item in Adjacency if item is not Adjacency.SECRET],
        "sampler": list(Sampler),
        "unit": [Unit(), Unit("user")],
        "records": [1, 59_999, 10**6],
        "normalizer": list(Normalizer),
    }
    for name, values in others.items():
        recorded = getattr(state, name)
        for value in values if recorded is not None else ():
            if value != recorded and value not in state.also:
                with pytest.raises(ValueError, match=f"the file says {name} "):
                    read_as(state, Stated(**{name: value}))


# --- TensorFlow Privacy


def test_a_statement_of_tensorflow_privacy_is_about_examples() -> None:
    """Its values of users are its own, by group privacy, and are shown; five examples of a user are a group."""
    state = read_state(FILES / "tensorflow-privacy-users.txt")
    assert (state.unit, state.adjacency, state.stated) == (Unit(), Adjacency.ADD_REMOVE, None)
    (remark,) = [item for item in state.remarks if "users" in item or "user has" in item]
    for number in ("567.740", "11.783", "at most 5 examples"):
        assert number in remark
    given: dict[str, Any] = {"sampler": Sampler.POISSON, "adjacency": Adjacency.ADD_REMOVE}
    read_as(state, Stated(unit=Unit("group", 5), **given))
    with pytest.raises(ValueError, match="the file says unit record, not user"):
        read_as(state, Stated(unit=Unit("user"), **given))


def test_a_user_of_one_example_is_an_example() -> None:
    state = read_state(FILES / "tensorflow-privacy-single.txt")
    for unit in (Unit(), Unit("user"), Unit("group", 2)):
        read_as(state, Stated(unit=unit, sampler=Sampler.POISSON))


def test_one_name_of_tensorflow_privacy_means_two_relations() -> None:
    """Its ε with each example once per epoch counts an example that leaves its place empty."""
    state = read_state(FILES / "tensorflow-privacy-without.txt")
    reading = read_as(state, Stated(adjacency=Adjacency.ZERO_OUT, sampler=Sampler.SHUFFLED))
    assert reading.adjacency is Adjacency.ZERO_OUT
    assert any("by one name" in item for item in reading.assumptions)
    assert read_as(state, Stated(sampler=Sampler.POISSON)).adjacency is Adjacency.ADD_REMOVE


TEXT = (FILES / "tensorflow-privacy-users.txt").read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Example-level", "User-level"),
        ("Example-level DP with add-or-remove-one", "Example-level DP with replace-one"),
        ("at most 5", "no bound on number of"),
        (
            "User-level DP with add-or-remove-one adjacency at delta = 1e-06",
            "User-level DP with add-or-remove-one adjacency at delta = 1e-05",
        ),
        ("protects the release of all model checkpoints", "protects the release of no model checkpoints"),
        ("(*) Poisson sampling is not usually", "(*) Poisson sampling is usually"),
        ("RDP accounting:", "other accounting:"),
    ],
)
def test_a_statement_with_another_sentence_is_refused(tmp_path: Path, old: str, new: str) -> None:
    text = " ".join(TEXT.split())
    assert old in text
    with pytest.raises(ValueError, match="TensorFlow Privacy") as error:
        state_of(tmp_path, text.replace(old, new, 1))
    assert "\n" not in str(error.value)


def test_microbatches_name_their_condition() -> None:
    state = read_state(FILES / "tensorflow-privacy-with.txt")
    assert any("moves no other example to another microbatch" in item for item in state.notes)
    assert not any("microbatch" in item for item in read_state(FILES / "tensorflow-privacy-without.txt").notes)


# --- what is left unread


@pytest.mark.parametrize(
    ("name", "unread"),
    [
        ("flower-poisson.json", ["max_epsilon", "orders"]),
        ("dpsynth.json", ["attribute_names", "compressed_attribute_sizes", "round_info"]),
        ("safe-synthesizer-config.json", ["data", "per_sample_max_grad_norm", "training"]),
    ],
)
def test_fields_that_are_left_unread_are_named(tmp_path: Path, name: str, unread: list[str]) -> None:
    """Those of the sample, and any other."""
    state = read_state(FILES / name)
    assert f"It leaves unread: {', '.join(unread)}." in state.remarks
    content = json.loads((FILES / name).read_text()) | {"further": 1}
    assert any("further" in item for item in state_of(tmp_path, json.dumps(content)).remarks)


@pytest.mark.parametrize(
    ("content", "unread"),
    [
        (
            {"history": [[1.0, 0.1, 3]], "mechanism": "rdp", "delta": 1e-5, "adjacency": "add_remove"},
            "adjacency, delta",
        ),
        (
            {"epoch": 3, "privacy_accountant_state_dict": {"history": [[1.0, 0.1, 3]], "mechanism": "rdp"}},
            "epoch",
        ),
        ({"steps": [[0.5, 0.0]], "tol": 1e-9, "privacy": {}}, "privacy, tol"),
        ({"process": {"type": "Gaussian", "noise_multiplier": 1.0}, "budget": {"type": "BetaBudget"}}, "budget"),
    ],
)
def test_other_fields_that_are_left_unread(tmp_path: Path, content: Any, unread: str) -> None:
    assert state_of(tmp_path, json.dumps(content)).remarks == (f"It leaves unread: {unread}.",)


def test_another_version_of_opendp_is_an_assumption(tmp_path: Path) -> None:
    text = (FILES / "opendp-geometric.json").read_text()
    assert not any("version" in note for note in state_of(tmp_path, text).notes)
    assert any(
        "another version of OpenDP" in note for note in state_of(tmp_path, text.replace("0.16.0", "0.9.1")).notes
    )

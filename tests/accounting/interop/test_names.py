"""Of a file's content only numbers and names are shown, in what is said of it and in what refuses it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event

from dpassay.accounting.interop.names import left_unread, shown, without_content
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import Stated, read_as

FILES = Path(__file__).parent / "files"
PRIVATE = "Alice Miller, 12 Main St."


def said(path: Path) -> str:
    """Everything that is said of a file, or the refusal."""
    try:
        state = read_state(path)
        reading = read_as(state, Stated())
    except ValueError as error:
        return str(error)
    return " ".join(
        [state.what, *state.remarks, *state.notes, *reading.assumptions, *reading.hints, repr(reading.event)]
    )


def with_text(content: Any) -> Iterator[Any]:
    """The content with one of its values, or one more key, as private text."""
    if isinstance(content, dict):
        yield {**content, PRIVATE: 1}
        for key, value in content.items():
            yield from ({**content, key: item} for item in with_text(value))
    elif isinstance(content, list):
        for index, value in enumerate(content[:4]):
            yield from ([*content[:index], item, *content[index + 1 :]] for item in with_text(value))
    else:
        yield PRIVATE
        yield [PRIVATE]
        yield {"x": PRIVATE}


@pytest.mark.grid
@pytest.mark.parametrize("path", sorted(FILES.glob("*.json")), ids=lambda path: path.name)
def test_no_text_of_a_json_file_is_shown(tmp_path: Path, path: Path) -> None:
    changed = list(with_text(json.loads(path.read_text())))
    for content in changed[:: 1 + len(changed) // 150]:
        (tmp_path / "file").write_text(json.dumps(content))
        assert "Alice" not in said(tmp_path / "file")


EVENT = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.5)), 3)


def test_no_text_of_an_event_is_shown(tmp_path: Path) -> None:
    for content in with_text(json.loads(json.dumps(EVENT.to_named_tuple()))):
        (tmp_path / "file").write_text(json.dumps(content))
        assert "Alice" not in said(tmp_path / "file")


STATE = {"history": [[1.0, 0.01, 500]], "mechanism": "dpassay", "adjacency": "zero_out", "sampler": "poisson"}


def test_no_text_of_a_checkpoint_is_shown(tmp_path: Path) -> None:
    for content in with_text({"rows": [PRIVATE], "privacy_accountant_state_dict": STATE}):
        (tmp_path / "file").write_bytes(pickle.dumps(content))
        assert "Alice" not in said(tmp_path / "file")


@pytest.mark.parametrize(
    "text",
    [
        f"GaussianDpEvent(noise_multiplier={PRIVATE!r})",
        f"GaussianDpEvent(noise_multiplier=[{PRIVATE!r}])",
        f"ComposedDpEvent(events=[{PRIVATE!r}])",
        f"SelfComposedDpEvent(event={PRIVATE!r}, count={PRIVATE!r})",
        f"DiagnosticInformation(epsilon={PRIVATE!r}, delta=0.1, mechanism={PRIVATE!r}, dp_operations=[{PRIVATE!r}])",
        f"DiagnosticInformation(epsilon=1.0, delta=0.1, mechanism={PRIVATE!r}, dp_operations=[f(name={PRIVATE!r}, "
        f"mechanism_type={PRIVATE!r}, epsilon=1.0)])",
        f"DP epsilon=1, delta={PRIVATE}",
        (FILES / "tensorflow-privacy-with.txt").read_text() + PRIVATE,
        (FILES / "private-evolution-noise.txt").read_text() + PRIVATE,
        PRIVATE,
    ],
)
def test_no_text_of_a_text_is_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    assert "Alice" not in said(tmp_path / "file")


def test_names_are_shown() -> None:
    assert shown("os.system") == "'os.system'"
    assert shown("one two") == shown(3) == "'…'"
    assert without_content("must be one of a, b, not 'sometimes'") == "must be one of a, b, not 'sometimes'"
    assert without_content(f"must be a, not [{PRIVATE!r}, 'é']") == "must be a, not ['…', '…']"
    assert (
        without_content("argument 'k' of OpenDP's make_x, not \"it's me\"")
        == "argument 'k' of OpenDP's make_x, not '…'"
    )
    assert left_unread(["b", "a", "read"], ["read"]) == ("It leaves unread: a, b.",)
    assert left_unread(["a", PRIVATE], []) == ("It leaves unread: a, 1 more.",)
    assert left_unread(["read"], ["read", "more"]) == ()

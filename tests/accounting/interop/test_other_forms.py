"""Files in other forms than the usual: older pickles and checkpoints, compressed ones, numbers of NumPy and PyTorch."""

from __future__ import annotations

import collections
import functools
import gzip
import io
import json
import math
import pickle
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import dp_event

from dpassay.accounting import account
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.interop import pickled, read
from dpassay.accounting.interop.conditions import Normalizer, Sampler
from dpassay.accounting.interop.pickled import Opaque, UnreadableError, values
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import RepeatedEvent, SampledGaussian, State, Stated, read_as

FILES = Path(__file__).parent / "files"
HISTORY = [(1.0, 0.01, 500), (1.5, 0.01, 20)]
STATE = collections.OrderedDict([("history", HISTORY), ("mechanism", "rdp")])
PARTS = (SampledGaussian(1.0, 0.01, 500), SampledGaussian(1.5, 0.01, 20))


def state_of(folder: Path, content: bytes) -> State:
    (folder / "file").write_bytes(content)
    return read_state(folder / "file")


def refusal(folder: Path, content: bytes) -> str:
    with pytest.raises(ValueError, match="file: ") as error:
        state_of(folder, content)
    message = str(error.value).partition("file: ")[2]
    assert "\n" not in message
    return message


def saved(content: Any, *, legacy: bool = False) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


CHECKPOINT = {"module_state_dict": torch.nn.Linear(3, 2).state_dict(), "privacy_accountant_state_dict": STATE}
SAVERS: dict[str, Callable[[Any], bytes]] = {
    "zip": saved,
    "legacy": lambda content: saved(content, legacy=True),
    **{
        f"pickle{protocol}": functools.partial(pickle.dumps, protocol=protocol)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.grid("form", "content", "packed")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("form", SAVERS)
@pytest.mark.parametrize("content", [STATE, dict(STATE), CHECKPOINT], ids=["ordered", "dict", "checkpoint"])
def test_states_in_every_form(tmp_path: Path, form: str, content: Any, packed: bool) -> None:
    written = SAVERS[form](content)
    state = state_of(tmp_path, gzip.compress(written) if packed else written)
    assert state.library == "Opacus"
    assert state.parts == PARTS


@pytest.mark.parametrize("path", sorted(FILES.glob("*.txt")) + sorted(FILES.glob("*.json")), ids=lambda path: path.name)
def test_compressed_files_say_what_the_files_say(tmp_path: Path, path: Path) -> None:
    def answer(content: bytes) -> State | str:
        try:
            return state_of(tmp_path, content)
        except ValueError as error:
            return str(error)

    plain = path.read_bytes()
    assert answer(gzip.compress(plain)) == answer(plain)


def test_compressed_files_have_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "LARGEST", 2**16)
    bomb = gzip.compress(b"{" + b" " * 2**22)
    assert len(bomb) < 2**13
    assert "more than 65536 bytes when it is decompressed" in refusal(tmp_path, bomb)
    assert gzip.compress(b"")[:2] == read.GZIP


def test_damaged_compressed_files_are_one_line(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(STATE).encode())
    broken = bytes([*whole[:12], whole[12] ^ 255, *whole[13:]])
    for content in (whole[:-3], whole[:30], broken, whole[:2], whole + b"more"):
        assert "is damaged" in refusal(tmp_path, content)
    assert "compressed by gzip twice" in refusal(tmp_path, gzip.compress(whole))


def test_two_states_in_one_file_are_not_read_as_one(tmp_path: Path) -> None:
    """`pickle.load` reads the first pickle of a file and leaves the rest."""
    for protocol in (2, 4):
        twice = pickle.dumps(STATE, protocol=protocol) * 2
        assert "several pickles" in refusal(tmp_path, twice)
    with pytest.raises(UnreadableError, match="several pickles"):
        values(pickle.dumps(STATE, protocol=0) * 2)


def test_a_damaged_old_checkpoint_is_one_line(tmp_path: Path) -> None:
    whole = saved(CHECKPOINT, legacy=True)
    end = whole.index(b"privacy_accountant")
    for cut in (30, 60, 140, end, end + 60):
        assert "damaged" in refusal(tmp_path, whole[:cut])
    assert "damaged" in refusal(tmp_path, whole.replace(b"M\xe9\x03.", b"M\xe8\x03.", 1))  # version 1000


# --- numbers of NumPy and PyTorch

SCALARS: list[Any] = [
    np.float64(1.1),
    np.float32(1.1),
    np.float16(1.1),
    np.dtype(">f8").type(1.1),
    torch.tensor(1.1),
    torch.tensor(1.1, dtype=torch.float64),
    torch.tensor(1.1, dtype=torch.bfloat16),
    torch.tensor(1.1, dtype=torch.float16),
    torch.tensor([7.0, 1.1, 3.0])[1],
    torch.nn.Parameter(torch.tensor(1.1)).detach(),
]
COUNTS: list[Any] = [
    np.int64(500),
    np.int32(500),
    np.uint16(500),
    torch.tensor(500),
    torch.tensor(500, dtype=torch.int16),
]


@pytest.mark.grid("form", "scalar")
@pytest.mark.parametrize("form", SAVERS)
@pytest.mark.parametrize(
    "scalar", SCALARS, ids=[f"{type(item).__name__}-{item.dtype}-{n}" for n, item in enumerate(SCALARS)]
)
def test_scalars_are_the_numbers_that_they_are(tmp_path: Path, form: str, scalar: Any) -> None:
    """`float` of them by their own libraries, exactly."""
    written = SAVERS[form]({"history": [(scalar, np.float64(0.01), 500)], "mechanism": "rdp", "w": torch.ones(5)})
    assert state_of(tmp_path, written).parts == (SampledGaussian(float(scalar), 0.01, 500),)


@pytest.mark.grid("form", "scalar")
@pytest.mark.parametrize("form", SAVERS)
@pytest.mark.parametrize("scalar", COUNTS, ids=[f"{type(item).__name__}-{item.dtype}" for item in COUNTS])
def test_counts_are_the_numbers_that_they_are(tmp_path: Path, form: str, scalar: Any) -> None:
    written = SAVERS[form]({"history": [(1.0, 0.01, scalar)], "mechanism": "rdp"})
    assert state_of(tmp_path, written).parts == (SampledGaussian(1.0, 0.01, 500),)


def test_big_endian_scalars_are_decoded_by_their_order() -> None:
    """NumPy writes none; the bytes are by hand, after `numpy.dtype.__reduce__`."""
    native = pickle.dumps(np.float64(1.1), protocol=3)
    assert native.count(struct.pack("<d", 1.1)) == 1
    assert native.count(b"X\x01\x00\x00\x00<") == 1
    swapped = native.replace(struct.pack("<d", 1.1), struct.pack(">d", 1.1)).replace(
        b"X\x01\x00\x00\x00<", b"X\x01\x00\x00\x00>"
    )
    assert pickle.loads(swapped) == values(swapped) == 1.1  # noqa: S301 (of NumPy alone)


@pytest.mark.grid("form", "value")
@pytest.mark.parametrize("form", SAVERS)
@pytest.mark.parametrize(
    "value", [torch.tensor([1.1]), np.array([1.1, 2.0]), torch.tensor(True), np.bool_(True), np.complex64(1j), "1.1"]
)
def test_other_objects_are_no_numbers(tmp_path: Path, form: str, value: Any) -> None:
    message = refusal(tmp_path, SAVERS[form]({"history": [(value, 0.01, 500)], "mechanism": "rdp"}))
    assert "history[0] must be three numbers" in message
    assert "float" in message, "it says how to export"


def test_big_tensors_are_not_read() -> None:
    """A number far behind the beginning of its tensor is not looked for."""
    far = torch.arange(2**16, dtype=torch.float64)[-1]
    assert isinstance(values(saved(far.clone(), legacy=True)), float)
    assert isinstance(values(saved(far, legacy=True)), Opaque)


REPRS = [
    (repr(np.float64(1.1)), 1.1),
    (repr(np.float32(1.1)), float(np.float32(1.1))),
    (repr(np.float16(1.1)), float(np.float16(1.1))),
    ("numpy.float64(1.1)", 1.1),
    (repr(np.int64(3)), 3.0),
    (repr(torch.tensor(3.0)), 3.0),
    (repr(torch.tensor(3)), 3.0),
]


@pytest.mark.parametrize(("shown", "value"), REPRS)
def test_scalars_in_texts_of_events(tmp_path: Path, shown: str, value: float) -> None:
    text = f"SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier={shown}), count={np.int64(7)!r})"
    state = state_of(tmp_path, text.encode())
    assert state.parts == (RepeatedEvent(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(value), 7)),)
    assert state.exact


@pytest.mark.parametrize("content", [STATE, dict(STATE), CHECKPOINT["privacy_accountant_state_dict"]])
@pytest.mark.parametrize("number", [float, np.float64, np.float32, lambda value: torch.tensor(value)])
def test_texts_of_states_of_opacus(tmp_path: Path, content: Any, number: Any) -> None:
    """What ``print(accountant.state_dict())`` writes; of tensors the worst that is printed so."""
    written = type(content)(content)
    written["history"] = [(number(noise), number(rate), steps) for noise, rate, steps in HISTORY]
    state = state_of(tmp_path, repr(written).encode())
    rounded = isinstance(number(1.0), torch.Tensor)
    assert state.exact is not rounded
    assert len(state.parts) == len(HISTORY)
    for part, (noise, rate, steps) in zip(state.parts, HISTORY, strict=True):
        assert isinstance(part, SampledGaussian)
        assert part.steps == steps
        if rounded:
            assert noise - 1e-4 < part.noise_multiplier <= noise
            assert rate <= part.rate < rate + 1e-4
        else:
            assert (part.noise_multiplier, part.rate) == (float(number(noise)), float(number(rate)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'history': [(1.0, 0.01, 5)], 'mechanism': 'rdp', 'history': []}", "a key twice"),
        ("OrderedDict([('history', []), ('history', []), ('mechanism', 'rdp')])", "a key twice"),
        ("{'history': [(1.0, 0.01, f(3))], 'mechanism': 'rdp'}", "must be three numbers"),
        ("{'history': [(1.0, 0.01, 5)], 'mechanism': rdp}", "mechanism one of"),
        ("{'history': [(1.0, 0.01, 5)], 'mechanism': 'rdp'", "not the text that it writes"),
        ("{'other': 3}", "is no ledger, claim, or file"),
        ("{**{'history': []}, 'mechanism': 'rdp'}", "JSON"),
        ("{'a': 1, **{'history': []}, 'mechanism': 'rdp'}", "is no text"),
    ],
)
def test_texts_of_states_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text.encode())


@pytest.mark.grid("scalar", "options")
@pytest.mark.parametrize("scalar", [1.1, 1.23456, 0.00417, 1.23456e-5, 123456.789])
@pytest.mark.parametrize("options", [{}, {"precision": 2}, {"precision": 6}, {"precision": 3, "sci_mode": True}])
def test_a_tensor_in_a_text_counts_as_the_worst_that_is_printed_so(
    tmp_path: Path, scalar: float, options: dict[str, Any]
) -> None:
    """PyTorch rounds what it prints: noise is taken from the lower end, a rate from the upper one."""
    tensor = torch.tensor(scalar, dtype=torch.float64)
    torch.set_printoptions(**options)  # type: ignore[no-untyped-call]
    try:
        shown = repr(tensor)
    finally:
        torch.set_printoptions(profile="default", sci_mode=None)  # type: ignore[no-untyped-call]
    state = state_of(tmp_path, f"GaussianDpEvent(noise_multiplier={shown})".encode())
    (part,) = state.parts
    assert isinstance(part, RepeatedEvent)
    noise = part.event.noise_multiplier
    assert noise <= scalar
    assert not state.exact
    printed = Fraction(shown.removeprefix("tensor(").partition(",")[0].rstrip(")"))
    assert abs(Fraction(noise) - printed) <= abs(printed) * Fraction(6, 100) + Fraction(1, 10**3)
    if scalar < 1 and printed:
        sampled = f"PoissonSampledDpEvent(sampling_probability={shown}, event=GaussianDpEvent(noise_multiplier=1.0))"
        (part,) = state_of(tmp_path, sampled.encode()).parts
        assert isinstance(part, RepeatedEvent)
        assert scalar <= part.event.sampling_probability <= 1


def test_the_ends_of_a_printed_tensor(tmp_path: Path) -> None:
    """1.1000 is printed of numbers from 1.09995 to 1.10005."""
    (part,) = state_of(tmp_path, b"GaussianDpEvent(noise_multiplier=tensor(1.1000))").parts
    assert isinstance(part, RepeatedEvent)
    assert Fraction(part.event.noise_multiplier) <= Fraction("1.09995")
    assert math.nextafter(part.event.noise_multiplier, 2) > 1.09995
    for shown, noise in (("tensor(0.0000)", 0.0), ("tensor(-1.0000)", -0.99995)):  # the second is refused later
        (part,) = state_of(tmp_path, f"LaplaceDpEvent(noise_multiplier={shown})".encode()).parts
        assert isinstance(part, RepeatedEvent)
        assert part.event.noise_multiplier == pytest.approx(noise, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GaussianDpEvent(noise_multiplier=1.0, noise_multiplier=9.0)", "an argument twice"),
        (
            "SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=1.0, noise_multiplier=9.0), count=3)",
            "an argument twice",
        ),
        ("DiagnosticInformation(epsilon=1.0, epsilon=2.0, delta=0, mechanism='x', dp_operations=[])", "argument twice"),
        ("GaussianDpEvent(noise_multiplier=np.array(1.0))", "such as np.float64"),
        ("GaussianDpEvent(noise_multiplier=os.float64(1.0))", "such as np.float64"),
        ("GaussianDpEvent(noise_multiplier=np.float64('x'))", "such as np.float64"),
        ("GaussianDpEvent(noise_multiplier=np.float64(1.0, 2.0))", "such as np.float64"),
        ("ZCDpEvent(rho=tensor(1.1000))", r"print float\(\)"),
        ("GaussianDpEvent(noise_multiplier=np.float64(1" + "0" * 400 + "))", "such as np.float64"),
        ("GaussianDpEvent(noise_multiplier=tensor(1.1000e-900))", "such as np.float64"),
        ("GaussianDpEvent(noise_multiplier=" + "-" * 50_000 + "1)", "text that it writes|such as"),
    ],
)
def test_texts_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        read_as(state_of(tmp_path, text.encode()), Stated())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("UnsupportedDpEvent()", "could not describe"),
    ],
)
def test_events_that_no_accountant_bounds_are_named(tmp_path: Path, text: str, what: str) -> None:
    message = refusal(tmp_path, text.encode())
    assert "dpassay does not support event" in message
    assert what in message


@pytest.mark.parametrize("shape", [1.0, math.inf])
def test_a_random_number_of_runs_is_read(tmp_path: Path, shape: float) -> None:
    """JSON has no infinite number, and Python writes the shape of a Poisson number as one."""
    event = dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(2.0), 10.0, shape)
    mapping = event.to_named_tuple()._asdict() | {"event": event.event.to_named_tuple()._asdict()}
    for content in (repr(event), json.dumps(event.to_named_tuple()), json.dumps(mapping)):
        reading = read_as(state_of(tmp_path, content.encode()), Stated(adjacency=Adjacency.ADD_REMOVE))
        assert repr(reading.event) == repr(event)
    text = repr(event).replace("mean=10.0", "mean=0.5").replace("shape=inf", "shape=1.0")
    assert "mean must be at least 1" in refusal(tmp_path, text.encode())


def test_other_infinite_numbers_are_refused(tmp_path: Path) -> None:
    event = dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(2.0), 10.0, math.nan)
    assert "no number of JSON" in refusal(tmp_path, json.dumps(event.to_named_tuple()).encode())
    alone = dp_event.GaussianDpEvent(math.inf).to_named_tuple()
    assert "no number of JSON" in refusal(tmp_path, json.dumps(alone).encode())


# --- the line of TensorFlow Privacy until 2022

LINE = (FILES / "tensorflow-privacy-line.txt").read_text()


def test_the_line_of_older_versions() -> None:
    """Written by 0.8.0 for 250 of 60000 examples and 15 epochs; its ε by RDP is above ours."""
    state = read_state(FILES / "tensorflow-privacy-line.txt")
    (part,) = state.parts
    assert isinstance(part, SampledGaussian)
    assert (part.noise_multiplier, part.steps, state.delta, state.stated) == (1.3, 15 * 240, 1e-5, 0.942)
    assert 250 / 60_000 <= part.rate <= 0.004175 * (1 + 1e-12)
    assert (state.adjacency, state.unit, state.sampler, state.records, state.exact) == (None, None, None, None, False)
    given = Stated(adjacency=Adjacency.ADD_REMOVE, sampler=Sampler.POISSON, normalizer=Normalizer.PUBLIC)
    reading = read_as(state, given)
    result = account(reading.event, adjacency="add_remove", delta=1e-5).value
    exact = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(250 / 60_000, dp_event.GaussianDpEvent(1.3)), 15 * 240
    )
    least = account(exact, adjacency="add_remove", delta=1e-5).interval
    assert least is not None
    assert least.lower <= result <= 0.942
    assert any("with three digits" in item for item in state.notes)


@pytest.mark.parametrize("rate", [0.1, 0.01, 0.009996, 0.0100499, 0.99951, 1.0, 1 / 3, 4.16666e-7, 0.0004175])
def test_a_printed_rate_counts_as_the_largest_that_is_printed_so(tmp_path: Path, rate: float) -> None:
    """By the library's own format, up to rounding in its own product."""
    text = LINE.replace("= 0.417%", f"= {100 * rate:.3g}%")
    (part,) = state_of(tmp_path, text.encode()).parts
    assert isinstance(part, SampledGaussian)
    assert rate <= part.rate <= min(1.0, rate * 1.01)


@pytest.mark.parametrize(
    "old_and_new",
    [("0.417%", "x%"), ("satisfies", "does not satisfy"), ("delta = 1e-05", "delta = 2"), ("0.417%", "0%")],
)
def test_changed_lines_are_refused(tmp_path: Path, old_and_new: tuple[str, str]) -> None:
    text = LINE.replace(*old_and_new)
    assert text != LINE
    assert refusal(tmp_path, text.encode())
    assert "several statements" in refusal(tmp_path, (LINE + LINE).encode())

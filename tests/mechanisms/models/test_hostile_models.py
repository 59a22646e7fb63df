"""Folders of models that were written to do harm: nothing in them runs, and each is refused or read in one line."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentence_models import save_sentence_model
from small_models import save_model
from transformers.utils.import_utils import KERNELS_MIN_VERSION

from dpassay.mechanisms.embedding.sentence import SentenceEmbedder
from dpassay.mechanisms.models import template_rendering
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.prompts import check_template
from dpassay.mechanisms.models.template_rendering import RenderingError, rendered

MARKER = "dpassay_was_here"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("whole") / "model", "llama", chat="gemma")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_sentence_model(tmp_path_factory.mktemp("embedder") / "model")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What appears in the working directory, where everything that runs leaves a trace."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return lambda: sorted(path.name for path in here.iterdir())


class Bomb:
    """A pickle that writes a file where it is loaded."""

    def __reduce__(self) -> Any:
        return (os.mkdir, (MARKER,))


def edit(folder: Path, name: str, changes: dict[str, Any]) -> None:
    path = folder / name
    held = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(held | changes))


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder, "config.json", changes)


def text(name: str, content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(content)

    return write


def code(folder: Path) -> None:
    """Code in the folder, which the configuration says to load."""
    (folder / "evil.py").write_text(f"import os\nos.mkdir({MARKER!r})\nclass Evil: pass\n")
    edit(folder, "config.json", {"auto_map": {"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.Evil"}})
    edit(folder, "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}})


def pickles(folder: Path) -> None:
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin", "vocab.pkl", "optimizer.pt"):
        (folder / name).write_bytes(pickle.dumps(Bomb()))


def dropout(folder: Path) -> None:
    held = json.loads((folder / "tokenizer.json").read_text())
    held["model"]["dropout"] = 0.3
    (folder / "tokenizer.json").write_text(json.dumps(held))


def pipe(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    os.mkfifo(folder / "tokenizer_config.json")


def link(folder: Path) -> None:
    (folder / "special.json").symlink_to(folder / "special.json")


READ = {
    "a kernel to be fetched": config(_attn_implementation="kernels-community/flash-attn"),
    "the same under another name": config(attn_implementation="kernels-community/flash-attn"),
    "experts to be fetched": config(_experts_implementation="kernels-community/experts"),
    "code beside the weights": code,
    "pickles beside the weights": pickles,
    "attentions to be shown": config(output_attentions=True, output_hidden_states=True),
    "no dictionaries": config(return_dict=False),
    "a chat template that never ends": text(
        "chat_template.jinja", "{% for a in range(99999) %}" * 9 + "{% endfor %}" * 9
    ),
}
"""Tricks that change nothing: the model loads as if they were not there."""

REFUSED = {
    "an adapter": text("adapter_config.json", '{"base_model_name_or_path": "/elsewhere"}'),
    "quantised": config(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "a million layers": config(num_hidden_layers=10**6),
    "no layers": config(num_hidden_layers=0),
    "layers of no number": config(num_hidden_layers="3"),
    "a vocabulary of 10¹²": config(vocab_size=10**12),
    "a hidden size of 10⁹": config(hidden_size=10**9),
    "an end of text that is a text": config(eos_token_id="</s>"),
    "an unknown model": config(model_type="evil"),
    "a model type of no text": config(model_type=["llama"]),
    "a list": text("config.json", "[]"),
    "deep": text("config.json", '{"a":' * 100_000),
    "long": text("config.json", '{"a": "' + "x" * 2**21 + '"}'),
    "random tokens": dropout,
    "random pieces": lambda folder: edit(
        folder, "tokenizer_config.json", {"sp_model_kwargs": {"enable_sampling": True}}
    ),
    "a pipe": pipe,
    "a link to itself": link,
    "weights of no format": text("model.safetensors", "pickle"),
}


@pytest.mark.grid
@pytest.mark.parametrize("trick", READ)
def test_a_trick_changes_nothing(trick: str, whole: Path, tmp_path: Path, ran: Callable[[], list[str]]) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    READ[trick](folder)
    model, plain = (LanguageModel.load(path, device="cpu") for path in (folder, whole))
    assert ran() == []
    assert model.network.config._attn_implementation == "eager"
    assert model.plain_logits([1, 2, 3]).equal(plain.plain_logits([1, 2, 3]))
    model.check_modules()


@pytest.mark.parametrize("trick", REFUSED)
def test_a_trick_is_refused_in_one_line(
    trick: str, whole: Path, tmp_path: Path, ran: Callable[[], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    REFUSED[trick](folder)
    began = time.monotonic()
    with pytest.raises(ValueError, match="model") as error:
        LanguageModel.load(folder, device="cpu")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert time.monotonic() - began < 10
    assert ran() == []
    assert capfd.readouterr() == ("", "")


STUB = """
import pathlib
__version__ = {version!r}
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if name[0].isupper():
        return type(name, (), {{"__init__": lambda self, *args, **named: None}})
    def call(*args, **named):
        if "get_" in name or "load" in name:
            pathlib.Path({folder!r}, {package!r} + "." + name).write_text("")
            raise RuntimeError(name)
        return lambda inner: inner
    return call
"""
EVERY_PACKAGE = """
import pathlib, sys
from transformers import AutoModelForCausalLM
from dpassay.mechanisms.models.language_model import LanguageModel
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        print(folder.name, LanguageModel.load(folder, device="cpu").network.config._attn_implementation)
    except ValueError as error:
        print(folder.name, "refused")
        print(error, file=sys.stderr)
print(sorted(path.name for path in pathlib.Path(sys.argv[2]).iterdir()))
try:
    AutoModelForCausalLM.from_pretrained(pathlib.Path(sys.argv[1], "a kernel to be fetched"))
except Exception:
    pass
print(len(list(pathlib.Path(sys.argv[2]).iterdir())) > 0)
"""


def test_nothing_runs_where_every_optional_package_is_installed(whole: Path, tmp_path: Path) -> None:
    """Stubs of them note any use; loading the first folder without this package's care does use one."""
    traces, stubs, folders = (tmp_path / name for name in ("traces", "stubs", "folders"))
    traces.mkdir()
    for package, version in {
        "kernels": KERNELS_MIN_VERSION,
        "peft": "9.9",
        "flash_attn": "9.9",
        "bitsandbytes": "9.9",
    }.items():
        (stubs / package).mkdir(parents=True)
        (stubs / package / "__init__.py").write_text(STUB.format(folder=str(traces), package=package, version=version))
        facts = stubs / f"{package}-{version}.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    for trick, change in (READ | REFUSED).items():
        shutil.copytree(whole, folders / trick)
        change(folders / trick)
    done = subprocess.run(
        [sys.executable, "-c", EVERY_PACKAGE, folders, traces],
        env={**os.environ, "PYTHONPATH": str(stubs)},
        cwd=traces,
        capture_output=True,
        text=True,
        check=False,
    )
    *loaded, left, noted = done.stdout.splitlines()
    assert loaded == [f"{trick} {'eager' if trick in READ else 'refused'}" for trick in sorted(READ | REFUSED)]
    assert (left, noted) == ("[]", "True"), done.stderr


def modules(kind: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        held = json.loads((folder / "modules.json").read_text())
        held[-1]["type"] = kind
        (folder / "modules.json").write_text(json.dumps(held))
        (folder / "evil.py").write_text(f"import os\nos.mkdir({MARKER!r})\nclass Evil: pass\n")

    return change


EMBEDDERS = {
    "code beside the weights": modules("evil.Evil"),
    "any function": modules("os.mkdir"),
    "a kernel to be fetched": config(_attn_implementation="kernels-community/flash-attn"),
    "trust that is asked for": lambda folder: edit(
        folder, "sentence_bert_config.json", {"model_args": {"trust_remote_code": True}}
    ),
    "an activation of any kind": lambda folder: edit(folder, "config.json", {"activation_function": "os.mkdir"}),
    "an adapter": text("adapter_config.json", "{}"),
    "no list": text("modules.json", "{}"),
}


@pytest.mark.parametrize("trick", EMBEDDERS)
def test_an_embedder_is_refused_in_one_line(
    trick: str, embedder: Path, tmp_path: Path, ran: Callable[[], list[str]]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(embedder, folder)
    EMBEDDERS[trick](folder)
    with pytest.raises(ValueError, match="embedder") as error:
        SentenceEmbedder.load(folder, "cpu")
    assert "\n" not in str(error.value)
    assert ran() == []


# Templates

ENDLESS = "{% for a in range(99999) %}" * 6 + "{{ examples }}" + "{% endfor %}" * 6
HARMFUL = {
    "never ends": (ENDLESS, "longer than"),
    "takes all memory": ("{% set a = 'x' * 10**10 %}{{ examples }}", "more than|MemoryError"),
    "makes too much": ("{{ 'x' * (9999999 + examples | length) }}{{ examples }}", "more than"),
    "divides by nothing": ("{{ 1 / 0 }}{{ examples }}", "ZeroDivisionError|division by zero"),
    "reaches for Python": ("{{ examples.__class__.__mro__ }}", "SecurityError|unsafe"),
    "calls itself": (
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}{{ examples }}",
        "RecursionError|recursion|more than",
    ),
    "is wide": ("{examples:9999999999}", "MemoryError|more than"),
    "is no template": ("{% for %}{{ examples }}", "Expected|TemplateSyntaxError"),
}


@pytest.mark.grid
@pytest.mark.parametrize("trick", HARMFUL)
def test_a_template_is_rendered_within_limits(trick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template, message = HARMFUL[trick]
    monkeypatch.setattr(template_rendering, "SECONDS", 2.0)
    began = time.monotonic()
    with pytest.raises(ValueError, match=message) as error:
        check_template(template)
    assert time.monotonic() - began < 15
    assert "\n" not in str(error.value)
    assert rendered("prompt", "{{ examples | join }}", {"examples": ["a", "b"]}) == "ab", "and the next one is rendered"


@pytest.mark.grid
@pytest.mark.parametrize("body", [ENDLESS.replace("examples", "messages"), "{{ 1 / 0 }}", "{{ 'x' * 10**10 }}"])
def test_a_chat_template_is_rendered_within_limits(
    body: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_rendering, "SECONDS", 2.0)
    shutil.copytree(whole, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(body)
    model = LanguageModel.load(tmp_path / "model", device="cpu")  # which does not render it
    with pytest.raises(ValueError, match="chat template cannot be rendered") as error:
        model.chat("a secret record")
    assert "secret" not in str(error.value)
    assert model.end_of_turn_ids == ()


def test_an_error_shows_no_values() -> None:
    with pytest.raises(RenderingError) as error:
        rendered("prompt", "{{ examples[0].nothing() }}", {"examples": ["a secret record"]})
    assert str(error.value) == "UndefinedError"

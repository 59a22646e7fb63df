"""The certificate of a release: whole releases verify, and whatever was changed is named, by dpassay and without it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
from command import run, written
from ledger_forgery import rewrite_chain, stored_rows, tamper
from little_release import EPSILON, finished_run, released

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.base.canonical_json import canonical_json
from dpassay.base.errors import InputError
from dpassay.base.signing import SigningKey, new_key
from dpassay.generators.ledger_run import described
from dpassay.generators.registry import make_claim
from dpassay.jobs.verify_release import verify_release
from dpassay.reports import certificate
from dpassay.reports.certificate import CERTIFICATE, Certificate
from dpassay.reports.release import Release

pytest.importorskip("cryptography", reason="needs the extra sign")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "certificate" / "check.py"
STATE = "XDG_STATE_HOME"
RUNS, EACH = 4, 400
"""How many mutations there are, in all."""

# What a certificate may hold, said a second time: all of it is on the released page.
PUBLIC = {
    *("schema_", "type", "name", "created", "claim", "guarantee", "holds_for", "unit", "adjacency", "delta", "result"),
    *("sentence", "best_upper", "bounds", "assumptions", "tested", "composition", "shortfalls", "accepted", "audits"),
    *("not_protected", "ledger", "files", "implementation", "versions", "key"),
}


def page_of_python() -> Any:
    spec = importlib.util.spec_from_file_location("check", PAGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = page_of_python()


class Made(NamedTuple):
    """A signed release in `out`, of the run in `run`; nothing here has an anchor."""

    folder: Path
    public: str

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def ledger(self) -> Path:
        return self.folder / "run" / "private" / "ledger.sqlite"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE, str(folder / "state"))
        public = new_key(folder / "my.key")
        released(folder, key=folder / "my.key", contact="Ann Example", purpose="a test", period="May 2024")
    shutil.rmtree(folder / "state")
    return Made(folder, public)


@pytest.fixture
def made(template: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    shutil.copytree(template.folder, tmp_path / "case")
    return Made(tmp_path / "case", template.public)


def named(message: str) -> str:
    """The file that an error names first."""
    return Path(message.partition(": ")[0]).name


def refused_by_both(made: Made, *, key: bool = True, ledger: bool = True) -> str:
    """The file that dpassay and the page of Python name, which must be the same."""
    with pytest.raises(InputError) as ours:
        verify_release(made.out, key=made.public if key else None, ledger=made.ledger if ledger else None)
    with pytest.raises(SystemExit) as theirs:
        CHECK.check(made.out, made.public if key else "", str(made.ledger) if ledger else "")
    said, other = str(ours.value), str(theirs.value)
    assert "\n" not in said + other
    assert named(said) == named(other), (said, other)
    return named(said)


def test_a_release_verifies_by_both(made: Made) -> None:
    for key in (None, made.public):
        for ledger in (None, made.ledger):
            assert verify_release(made.out, key=key, ledger=ledger).in_ledger == (ledger is not None)
            assert CHECK.check(made.out, key or "", str(ledger or ""))["key"] == made.public
    with Ledger.open(made.ledger, read_only=True) as opened:
        opened.export(made.folder / "export.jsonl")
    assert verify_release(made.out, ledger=made.folder / "export.jsonl").in_ledger


def test_the_page_of_python_runs_alone(made: Made) -> None:
    """In a Python that has neither dpassay nor torch in its path, and asserts nothing."""
    blocked = "import sys; sys.modules.update(dpassay=None, torch=None, numpy=None); import runpy; "
    code = f"{blocked}sys.argv[1:] = {[str(made.out), made.public, str(made.ledger)]!r}; "
    command = [sys.executable, "-O", "-c", f"{code}runpy.run_path({str(PAGE)!r}, run_name='__main__')"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"All 7 files are as certified; signed by {made.public}.\n"), done.stdout
    assert len(PAGE.read_text().splitlines()) <= 300, "so short that it can be read before it is trusted"
    (made.out / "claim.json").write_text("{}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "claim.json: was changed or exchanged\n")


def test_the_command_says_in_words_what_was_checked(made: Made) -> None:
    said = run("verify", made.out, "--key", made.public, "--ledger", made.ledger)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[:2] == [
        f"{made.out}: the certificate is whole, and all 7 files are as it says, and its ledger records it.",
        f"Signed by {made.public}.",
    ]
    assert "compare it with the key of the publisher" in run("verify", made.out).stdout
    body = written("verify", made.out)
    assert body["certificate"]["best_upper"]["value"] == EPSILON
    assert not body["in_ledger"]
    assert run("verify", made.out, "-q").stdout == ""


def test_a_changed_release_is_one_line_and_exit_code_2(made: Made) -> None:
    (made.out / "synthetic.jsonl").write_text("{}\n")
    said = run("verify", made.out)
    assert (said.returncode, said.stdout) == (2, "")
    path = made.out / "synthetic.jsonl"
    assert said.stderr == f"dpassay: {path}: was changed or exchanged: its SHA-256 is not the certified one\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--key", "00"], "must be a public key"),
        (["--key", "f" * 64], "is signed by another key"),
        (["--anchor", "anchor.json"], "goes with --ledger"),
    ],
)
def test_options_that_do_not_fit_are_one_line(options: list[str], says: str, made: Made) -> None:
    said = run("verify", made.out, *options)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)
    assert says in said.stderr


def test_without_a_key_a_release_is_not_signed_and_says_so(tmp_path: Path) -> None:
    out = released(tmp_path)
    assert verify_release(out).key is None
    assert "It is not signed" in run("verify", out).stdout
    assert "is not signed" in run("verify", out, "--key", "0" * 64).stderr
    with pytest.raises(SystemExit, match="is not signed"):
        CHECK.check(out, "0" * 64)


def test_what_is_no_release_is_one_line(tmp_path: Path) -> None:
    path = finished_run(tmp_path / "run")
    for folder in (tmp_path, tmp_path / "run", path.parent, tmp_path / "none"):
        said = run("verify", folder)
        assert (said.returncode, said.stderr.count("\n")) == (2, 1)
        assert "holds no certificate.json" in said.stderr


def test_a_bad_key_file_writes_nothing(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    (tmp_path / "bad.key").write_text("none")
    said = run("release", tmp_path / "run", "-o", tmp_path / "out", "--key", tmp_path / "bad.key")
    assert said.returncode == 2
    assert "holds no unencrypted Ed25519 key" in said.stderr
    assert not (tmp_path / "out").exists()


def test_the_certificate_holds_what_is_public_alone(made: Made) -> None:
    assert set(Certificate.model_fields) == PUBLIC
    content = (made.out / CERTIFICATE).read_text(encoding="utf-8")
    for word in ("zqprivate", "SUPPORTED", str(made.folder)):
        assert word not in content
    body = json.loads(content)["certificate"]
    page = json.loads((made.out / "report.json").read_text(encoding="utf-8"))
    shared = Certificate.model_fields.keys() & Release.model_fields.keys() - {
        "schema_",
        "created",
        "ledger",
        "accepted",
    }
    assert len(shared) == 12
    assert {name: body[name] for name in shared} == {name: page[name] for name in shared}
    assert (body["ledger"], body["composition"]) == (page["ledger"]["head"], page["ledger"]["composition"])
    assert body["claim"] == json.loads((made.out / "claim.json").read_text())
    assert (body["holds_for"], body["result"]) == ("every output", "The proof reaches the claim")
    jsonschema.validate(body, certificate.json_schema())
    jsonschema.validate(body, written("schema", "certificate"))


def test_what_the_publisher_states_is_in_the_certificate_and_on_the_page(made: Made) -> None:
    claim = json.loads((made.out / CERTIFICATE).read_text(encoding="utf-8"))["certificate"]["claim"]
    assert (claim["contact"], claim["purpose"], claim["period"]) == ("Ann Example", "a test", "May 2024")
    page = (made.out / "report.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert all(word in page for word in ("Ann Example", "a test", "May 2024"))


def test_what_the_publisher_states_is_no_part_of_the_run() -> None:
    """So it may be stated, or corrected, when the run has begun."""
    parameters = {"aggregate": "mean", "clip": 4.0, "temperature": 1.0, "batch_size": 8, "tokens": 16}
    body: dict[str, Any] = {"parameters": parameters, "data": {"source": "builtin", "name": "keys"}}
    body |= {"name": "small", "mechanism": "private_inference", "public": {"records": 16}}
    stated = make_claim(body | {"contact": "Ann\nExample", "purpose": "a test", "period": "May 2024"})
    assert described(stated) == described(make_claim(body))
    assert stated.contact == "Ann Example"
    for wrong in ("", " ", "a\u202eb", "x" * 501, 5):
        with pytest.raises(InputError, match="contact"):
            make_claim(body | {"contact": wrong})


def test_an_ex_post_claim_is_about_one_output_and_its_verdict_is_withheld(tmp_path: Path) -> None:
    out = released(tmp_path, guarantee={"type": "ex_post", "epsilon": 0.5})
    body = verify_release(out).certificate
    assert (body.holds_for, body.result) == ("this output", "ex-post claim: verdict withheld")
    assert {row.quantity for row in body.bounds} == {"epsilon"}


def test_the_guide_names_every_field_and_its_code_computes_the_bound_again(
    made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = PAGE.parents[1].joinpath("certificate.md").read_text(encoding="utf-8")
    table = guide.partition("## What it says")[2].partition("\n## ")[0]
    aliases = {field.alias or name for name, field in Certificate.model_fields.items()}
    named = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {word for names in named for word in re.findall(r"`(\w+)`", names)} == aliases
    ((code, expected),) = re.findall(r"```python\n([^`]*)```\n\n```text\n([^`]*)```", guide)
    shutil.move(made.out, made.folder / "released")
    monkeypatch.chdir(made.folder)
    exec(code, {})  # noqa: S102 (our own documentation)
    assert capsys.readouterr().out == expected
    assert f"at random, {RUNS * EACH} times" in " ".join(guide.split())


@pytest.mark.parametrize("change", [str.upper, lambda text: f" {text}", lambda text: f"{text[:2]} {text[2:]}"])
def test_a_signature_is_written_in_one_way(change: Callable[[str], str], made: Made) -> None:
    path = made.out / CERTIFICATE
    file = json.loads(path.read_bytes())
    path.write_text(canonical_json(file | {"signature": change(file["signature"])}) + "\n", encoding="utf-8")
    assert refused_by_both(made) == CERTIFICATE


# Mutations. Each changes a copy of the release and says which file both checks must name.

Mutation = Callable[[Made, random.Random], str]


def _bytes(path: Path, chance: random.Random) -> None:
    """Changes, removes or inserts a byte."""
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    match chance.randrange(3):
        case 0:
            content[place] ^= chance.randrange(1, 256)
        case 1:
            del content[place]
        case _:
            content.insert(place, chance.randrange(256))
    path.write_bytes(bytes(content))


def byte_of_the_certificate(made: Made, chance: random.Random) -> str:
    _bytes(made.out / CERTIFICATE, chance)
    return CERTIFICATE


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key of a leaf."""
    for key in value if isinstance(value, dict) else range(len(value)):
        inner = value[key]
        if isinstance(inner, dict | list) and inner:
            yield from leaves(inner)
        else:
            yield value, key


def _rewritten(made: Made, change: Callable[[dict[str, Any]], None], key: SigningKey | None = None) -> str:
    """Changes what is certified and states the new SHA-256, as somebody does who knows how."""
    path = made.out / CERTIFICATE
    file = json.loads(path.read_bytes())
    change(file)
    text = canonical_json(file["certificate"]).encode()
    file["sha256"] = hashlib.sha256(text).hexdigest()
    if key is not None:
        file["signature"] = key.sign(text)
    path.write_text(canonical_json(file) + "\n", encoding="utf-8")
    return CERTIFICATE


def value_of_the_certificate(made: Made, chance: random.Random) -> str:
    def change(file: dict[str, Any]) -> None:
        container, key = chance.choice(list(leaves(file["certificate"])))
        old = container[key]
        container[key] = chance.choice([value for value in (old and f"{old}0", 1.5, 0, None) if value != old])

    return _rewritten(made, change)


def no_signature(made: Made, chance: random.Random) -> str:
    def change(file: dict[str, Any]) -> None:
        file["signature"] = chance.choice([None, "", "0" * 128, file["signature"][:-1]])
        if chance.randrange(2):
            file["certificate"]["key"] = None

    return _rewritten(made, change)


def another_key(made: Made, chance: random.Random) -> str:
    other = made.folder / "other.key"
    public = new_key(other)
    return _rewritten(made, lambda file: file["certificate"].update(key=public), SigningKey.read(other))


def byte_of_a_document(made: Made, chance: random.Random) -> str:
    path = chance.choice(sorted(path for path in made.out.iterdir() if path.name != CERTIFICATE))
    _bytes(path, chance)
    return path.name


def exchanged_documents(made: Made, chance: random.Random) -> str:
    names = sorted(path.name for path in made.out.iterdir() if path.name != CERTIFICATE)
    first, second = sorted(chance.sample(names, 2))
    content = (made.out / first).read_bytes()
    (made.out / first).write_bytes((made.out / second).read_bytes())
    (made.out / second).write_bytes(content)
    return first


def missing_document(made: Made, chance: random.Random) -> str:
    path = chance.choice(sorted(path for path in made.out.iterdir() if path.name != CERTIFICATE))
    path.unlink()
    return path.name


def additional_document(made: Made, chance: random.Random) -> str:
    name = chance.choice(["more.jsonl", "certificate2.json", ".hidden"])
    (made.out / name).write_text("{}\n")
    return name


def cut_ledger(made: Made, chance: random.Random) -> str:
    """The chain that is left is whole, and the release was its last entry."""
    keep = chance.randrange(1, len(stored_rows(made.ledger)))
    tamper(made.ledger, ("DELETE FROM entries WHERE seq > ?", (keep,)))
    return made.ledger.name


def gap_in_the_ledger(made: Made, chance: random.Random) -> str:
    seq = chance.randrange(1, len(stored_rows(made.ledger)) + 1)
    tamper(made.ledger, ("DELETE FROM entries WHERE seq = ?", (seq,)))
    return made.ledger.name


def changed_entry(made: Made, chance: random.Random) -> str:
    seq, _, _, body, _, _ = chance.choice(stored_rows(made.ledger))
    fields = json.loads(body)
    container, key = chance.choice(list(leaves(fields)))
    container[key] = f"{container[key]}0"
    tamper(made.ledger, ("UPDATE entries SET body = ? WHERE seq = ?", (json.dumps(fields), seq)))
    return made.ledger.name


def rewritten_ledger(made: Made, chance: random.Random) -> str:
    """Another salt, and so another chain, which is whole."""
    salt = f"{chance.getrandbits(256):064x}"

    def change(_: int, of: str, kind: str, body: str) -> tuple[str, str, str]:
        fields = json.loads(body)
        if kind == "open":
            fields["salt"] = salt
        return of, kind, json.dumps(fields, sort_keys=True, separators=(",", ":"))

    rewrite_chain(made.ledger, change)
    return made.ledger.name


SHARES: dict[Mutation, int] = {
    byte_of_the_certificate: 20,
    value_of_the_certificate: 12,
    no_signature: 3,
    another_key: 1,
    byte_of_a_document: 8,
    exchanged_documents: 2,
    missing_document: 1,
    additional_document: 1,
    cut_ledger: 2,
    gap_in_the_ledger: 1,
    changed_entry: 2,
    rewritten_ledger: 1,
}


def mutate(made: Made, seed: int, number: int, folder: Path) -> Counter[str]:
    """Applies so many mutations, each to a new copy; how many there were of each kind."""
    chance, done = random.Random(seed), Counter[str]()
    for index in range(number):
        mutation = chance.choices(list(SHARES), list(SHARES.values()))[0]
        case = Made(folder / str(index), made.public)
        shutil.copytree(made.folder, case.folder)
        expected = mutation(case, chance)
        assert refused_by_both(case) == expected, (mutation.__name__, seed, index)
        done[mutation.__name__] += 1
        shutil.rmtree(case.folder)
    return done


@pytest.mark.parametrize("mutation", SHARES, ids=lambda mutation: mutation.__name__)
def test_a_mutation_is_refused_by_both_and_named(mutation: Mutation, made: Made) -> None:
    expected = mutation(made, random.Random(1))
    assert refused_by_both(made) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(RUNS))
def test_no_mutation_passes(seed: int, made: Made, tmp_path: Path) -> None:
    done = mutate(made, seed, EACH, tmp_path / "cases")
    assert set(done) == {mutation.__name__ for mutation in SHARES}


@pytest.mark.slow
def test_no_byte_of_an_unsigned_certificate_may_change(tmp_path: Path) -> None:
    out, chance = released(tmp_path), random.Random(5)
    content = (out / CERTIFICATE).read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= chance.randrange(1, 256)
        with pytest.raises(InputError):
            certificate.read_certificate(bytes(changed))
        with pytest.raises(SystemExit):
            CHECK.check_certificate(bytes(changed))


def test_another_release_with_a_certificate_of_its_own_is_not_in_the_ledger(made: Made, tmp_path: Path) -> None:
    """It verifies, for it is whole: only the key or the ledger tell whose it is."""
    other = released(tmp_path / "other", texts=("made up",))
    shutil.rmtree(made.out)
    shutil.copytree(other, made.out)
    assert verify_release(made.out).key is None
    assert refused_by_both(made, ledger=False) == CERTIFICATE
    assert refused_by_both(made, key=False) == made.ledger.name

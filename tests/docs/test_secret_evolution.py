"""The guide to secret-protected evolution: its code prints what it says, and its claim is the one that ships."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "secret-evolution.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)


def test_the_code_prints_what_the_guide_says() -> None:
    (code,), (shown,) = blocks("python"), blocks("text")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue() == shown


def test_the_shown_claims_are_the_shipped_ones_and_every_parameter_is_told() -> None:
    from dpassay.generators.aug_pe.claim import AugPEParameters
    from dpassay.generators.evolution.claim import Endpoint, Writing
    from dpassay.generators.secret_evolution.claim import SecretEvolutionParameters

    shown, endpoint, aug_pe = (yaml.safe_load(block) for block in blocks("yaml"))
    for claim, file in ((shown, "secrets-evolution.yaml"), (aug_pe, "notes-aug-pe.yaml")):
        shipped = yaml.safe_load((ROOT / "examples" / "claims" / file).read_text())
        assert claim.items() <= shipped.items()
    told = GUIDE.read_text()
    for name in (*SecretEvolutionParameters.model_fields, *AugPEParameters.model_fields, *Writing.model_fields):
        assert f"`{name}`" in told or f"{name}:" in told, name
    assert Endpoint.model_validate(endpoint["parameters"]["endpoint"]).api_key_env == "SOME_API_KEY"


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", GUIDE.read_text())
    assert links
    assert all((GUIDE.parent / link).exists() for link in links)

"""A release in the forms that others ask for: their fields, and nothing but what the released page says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dpassay.accounting import Adjacency, Bound
from dpassay.accounting.bounds import Direction, Rigor
from dpassay.reports.assay import Assay
from dpassay.reports.exports import nist_answers, registry_entry
from dpassay.reports.release import Release, releasable

# Fields of the registry's schema, at the commit that `registry_entry` names, with the values that it allows.
FIELDS = {
    "basic": "name data_curators intended_use data_product_type data_product_region description publication_date "
    "data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details data_source_type "
    "data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources notes registry_authors",
}
ALLOWED = {
    "data_product_type": {"Synthetic data"},
    "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
    "model_name": {"Central"},
    "release_type": {"One release", "Many releases"},
    "data_source_type": {"Static", "Dynamic"},
    "access_type": {"Interactive", "Non-interactive"},
}
REQUIRED = set(FIELDS["basic"].split()) - {"data_product_sector"}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def entry(page: Release) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(registry_entry(page, "what it does", "2026-01-02"))
    return read


def test_an_entry_has_the_fields_of_the_registry(assays: dict[str, Assay]) -> None:
    for assay in assays.values():
        read = entry(releasable(assay))
        assert set(read) == {"url_slug", "status", "tier", "deployment"}
        assert (read["status"], read["tier"]) == ("Draft", 3)
        for section, fields in read["deployment"].items():
            assert set(fields) <= set(FIELDS[section].split()), section
            for name in set(fields) & set(ALLOWED):
                assert fields[name] in ALLOWED[name]
        assert set(read["deployment"]["basic"]) >= REQUIRED
        parameters = read["deployment"]["privacy_loss"]["privacy_parameters"]
        assert set(parameters) <= {"epsilon", "delta", "rho"}
        assert all(math.isfinite(value) for value in parameters.values())


@pytest.mark.parametrize(
    ("quantity", "delta", "variant", "names"),
    [
        ("epsilon", None, "Pure DP", {"epsilon"}),
        ("epsilon", 0.0, "Pure DP", {"epsilon"}),
        ("epsilon", 1e-5, "Approximate DP", {"epsilon", "delta"}),
        ("rho", None, "Zero-concentrated DP", {"rho"}),
        ("renyi_epsilon", None, "Renyi DP", {"epsilon"}),
        ("mu", None, "Custom", set()),
        ("r", None, "Custom", set()),
    ],
)
def test_its_parameters_are_what_is_proven(
    quantity: str, delta: float | None, variant: str, names: set[str], assays: dict[str, Assay]
) -> None:
    at = {"renyi_epsilon": 8.0, "r": 0.1}.get(quantity)
    best = Bound(
        Direction.UPPER, 0.75, "lattice", Rigor.CERTIFIED, Adjacency.ADD_REMOVE, quantity=quantity, delta=delta, at=at
    )
    page = releasable(next(iter(assays.values()))).model_copy(update={"best_upper": best})
    read = entry(page)["deployment"]
    assert read["dp_variant"]["variant_name"] == variant
    parameters = read["privacy_loss"]["privacy_parameters"]
    assert set(parameters) == names
    assert all(value == (delta if name == "delta" else 0.75) for name, value in parameters.items())
    without = entry(page.model_copy(update={"best_upper": None}))["deployment"]
    assert without["dp_variant"]["variant_name"] == "Custom"
    assert without["privacy_loss"]["privacy_parameters"] == {}


def test_what_the_publisher_states_is_where_it_is_asked_for(assays: dict[str, Assay]) -> None:
    page = releasable(next(iter(assays.values())))
    stated = {"contact": "Ann Example", "purpose": "teaching", "period": "May 2024"}
    read = entry(page.model_copy(update={"claim": page.claim | stated}))["deployment"]
    assert read["basic"]["data_curators"] == read["administrative"]["registry_authors"] == ["Ann Example"]
    assert read["basic"]["intended_use"] == "teaching"
    assert "Period: May 2024." in read["basic"]["description"]
    answers = nist_answers(page.model_copy(update={"claim": page.claim | stated}), "what it does")
    assert all(words in answers for words in ("Contact: Ann Example.", "Purpose: teaching.", "Period: May 2024."))


def test_every_question_of_nist_has_an_answer(assays: dict[str, Assay]) -> None:
    for assay in assays.values():
        page = nist_answers(releasable(assay), "")
        sections = re.split(r"^## ", page, flags=re.M)[1:]
        assert len(sections) == 11
        for section in sections:
            assert re.search(r"^\*.+\?\*$", section, re.M), section
            assert re.search(r"^- \S", section, re.M), section


def test_nothing_private_is_exported(assays: dict[str, Assay]) -> None:
    """They are made from a `Release`; of its fields the verdict and ex-post numbers are none."""
    for assay in assays.values():
        page = releasable(assay)
        exported = [*texts(entry(page)), nist_answers(page, "")]
        for word in ("SUPPORTED", "REFUTED", "UNPROVEN"):
            assert not any(word in text for text in exported)

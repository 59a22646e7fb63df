"""What a report says of secrets: where they were found, what each group of them is proven, and no more."""

from __future__ import annotations

import pytest

from dpassay.reports import composition
from dpassay.reports.assay import Assay, SecretGroup, Secrets, SecretSource
from dpassay.reports.html import render
from dpassay.reports.release import releasable

RELEASE = {"type": "SecretReleaseDpEvent", "noise_multiplier": 2.5, "weights": [0.25, 0.5, 0.25], "remainder": 0.0}


def with_secrets(assay: Assay, *groups: SecretGroup) -> Assay:
    secrets = Secrets(
        sources=[SecretSource(kind="list", secrets=7, records=21, occurrences=22, nowhere=2)],
        groups=list(groups),
        public_records=79,
        private_records=21,
        releases=5,
        sigma=3.25,
        expected_sample=12.5,
    )
    parameters = assay.claim["parameters"] | {"secrets": [{"pattern": "zqpattern"}]}
    return assay.model_copy(update={"secrets": secrets, "claim": assay.claim | {"parameters": parameters}})


def test_weights_are_not_called_records(assays: dict[str, Assay]) -> None:
    assay = with_secrets(assays["approx_dp"], group(0.1))
    assert assay.secrets is not None
    weighted = assay.model_copy(update={"secrets": assay.secrets.model_copy(update={"inclusion": "weights"})})
    label = "Sum of the weights of private records in a release"
    for side in ("private", "release"):
        assert f'scope="row">{label}</th><td role="cell">12.5</td>' in render(weighted, side=side)
        assert label not in render(assay, side=side)


def group(certified: float | None) -> SecretGroup:
    return SecretGroup(secrets=3, records=9, p=0.01, claimed=0.2, certified=certified)


def test_counts_are_on_both_pages_and_a_pattern_on_the_private_one_only(assays: dict[str, Assay]) -> None:
    assay = with_secrets(assays["approx_dp"], group(0.1))
    private, release = (render(assay, side=side) for side in ("private", "release"))
    for page in (private, release):
        for label, value in (
            ("Records that hold a secret", "21"),
            ("Records without a secret", "79"),
            ("Noisy releases", "5"),
            ("Private records in a release, on average", "12.5"),
        ):
            assert f'scope="row">{label}</th><td role="cell">{value}</td>' in page
        assert "Secrets by their budgets" not in page, "one group is the claim itself"
        assert "before any data was read" not in page, "the plan follows from where secrets are"
        assert "the plan that follows from the places of secrets, which are public" in page
    assert "zqpattern" in private
    assert "zqpattern" not in release


@pytest.mark.parametrize(
    ("certified", "headline", "says"),
    [
        (0.2, "The proof reaches the claim", "for each of the 2 groups of secrets"),
        (0.21, "The proof does not reach the claim", "For 1 of 2 groups of secrets the proof does not reach"),
        (None, "The proof does not reach the claim", "For 1 of 2 groups of secrets the proof does not reach"),
    ],
)
def test_every_group_must_be_reached(
    certified: float | None, headline: str, says: str, assays: dict[str, Assay]
) -> None:
    released = releasable(with_secrets(assays["approx_dp"], group(0.1), group(certified)))
    assert released.headline == headline
    assert says in released.sentence
    assert "Secrets by their budgets" in render(
        with_secrets(assays["approx_dp"], group(0.1), group(0.1)), side="release"
    )


def test_releases_of_secrets_have_words() -> None:
    assert composition.describe(RELEASE).words == (
        "one release in which a secret occurs in 1 drawn records on average: Gaussian noise, 2.5 times the length of "
        "an occurrence"
    )
    assert "taken to reveal it" in composition.describe(RELEASE | {"noise_multiplier": 0.0}).words
    other = RELEASE | {"weights": [0.0, 0.0, 1.0]}
    assert composition.describe(other).words.startswith("one release in which a secret occurs in 2 drawn records: ")
    groups = {"type": "SecretGroupsReleaseDpEvent", "groups": [RELEASE, other]}
    step = composition.describe(groups)
    told = "by their budgets and by how often they are drawn, in turn is:"
    assert step.words == f"one noisy release, which for 2 groups of secrets, {told}"
    assert step.below == (composition.describe(RELEASE), composition.describe(other))
    assert composition.describe(groups | {"groups": [RELEASE]}) == composition.describe(RELEASE)

"""Words of a report, and which bounds may be compared with a claim."""

from __future__ import annotations

import pytest

from dpassay.accounting import ACCOUNTANTS, Bound, bounds
from dpassay.accounting.bounds import Direction
from dpassay.accounting.names import LAYER_METHODS, SECRET_METHODS
from dpassay.audits.verdict_wording import without_name
from dpassay.reports import comparison, text
from dpassay.reports.claim import ClaimedValue, best_bound, claimed


def bound(**more: object) -> Bound:
    fields = {
        "direction": "upper",
        "value": 1.0,
        "method": "zcdp",
        "rigor": "certified",
        "adjacency": "add_remove",
        "unit": "record",
        "delta": None,
        "at": None,
        "ceiling": None,
        "interval": None,
        "assumptions": [],
    }
    return Bound.from_json({**fields, **more})


def claim(**guarantee: object) -> ClaimedValue:
    what = claimed({"guarantee": guarantee, "public": {"records": 100}, "adjacency": "add_remove"})
    assert what is not None
    return what


def test_delta_from_the_public_number_of_records() -> None:
    assert claim(type="approx_dp", epsilon=2.0, delta="n^-1.1").delta == 100**-1.1


def test_no_claimed_number_where_there_is_none() -> None:
    assert claimed({}) is None
    assert claimed({"guarantee": {"type": "privacy_profile"}}) is None
    assert claimed({"guarantee": {"type": "pure_dp", "epsilon": "much"}}) is None


PURE = claim(type="pure_dp", epsilon=1.0)
APPROX = claim(type="approx_dp", epsilon=1.0, delta=1e-5)
EX_POST = claim(type="ex_post", epsilon=1.0)
RHO = claim(type="zcdp", rho=0.5)


@pytest.mark.parametrize(
    ("what", "row", "compared"),
    [
        (PURE, bound(), True),
        (PURE, bound(delta=1e-5), False),
        (PURE, bound(unit="user"), False),
        (PURE, bound(adjacency="replace_one"), False),
        (PURE, bound(quantity="ex_post_epsilon"), False),
        (PURE, bound(quantity="ex_post_epsilon", direction="lower"), True),
        (PURE, bound(direction="lower", delta=0.0), True),
        (APPROX, bound(), True),
        (APPROX, bound(delta=1e-5), True),
        (APPROX, bound(delta=1e-6), False),
        (APPROX, bound(quantity="ex_post_epsilon"), False),
        (APPROX, bound(direction="lower", delta=0.0), False),
        (APPROX, bound(direction="lower", delta=1e-5), True),
        (EX_POST, bound(), True),
        (EX_POST, bound(quantity="ex_post_epsilon"), True),
        (EX_POST, bound(delta=1e-5), False),
        (RHO, bound(quantity="rho"), True),
        (RHO, bound(), False),
    ],
)
def test_only_the_same_quantity_is_compared(what: ClaimedValue, row: Bound, compared: bool) -> None:
    assert what.on_scale(row) is compared


def test_what_counts() -> None:
    assert PURE.counts(bound())
    assert not PURE.counts(bound(rigor="estimate"))
    assert PURE.counts(bound(direction="lower", rigor="finite_sample", confidence=0.95))
    assert not EX_POST.counts(bound(direction="lower", rigor="finite_sample", confidence=0.95))
    rows = [bound(value=3.0), bound(value=2.0), bound(value=1.0, rigor="estimate")]
    best = best_bound(rows, PURE, Direction.UPPER)
    assert best is not None
    assert best.value == 2.0


@pytest.mark.parametrize("quantity", [*bounds.ARGUMENTS, *bounds.WITHOUT_ARGUMENT])
def test_every_quantity_of_a_bound_has_a_letter(quantity: str) -> None:
    at = 0.5 if quantity in ("beta", "r") else 2.0 if quantity in bounds.ARGUMENTS else None
    row = bound(quantity=quantity, value=0.25, at=at)
    assert text.symbol(row) in ("ε", "δ", "ρ", "μ", "β", "r")
    assert text.bound(row) == f"{text.symbol(row)} ≤ 0.25"
    argument = bounds.ARGUMENTS.get(quantity)
    assert text.argument(row) == ("" if argument is None else f"{argument} = {at:g}")


def test_every_method_has_words() -> None:
    """Accountants, ways to compare releases, and statistics; none reads like another but the variants of one."""
    names = {*ACCOUNTANTS, *SECRET_METHODS, *LAYER_METHODS, "adaptive", *comparison._LOOKS}
    assert names <= text.METHODS.keys()
    words = [text.method(name) for name in text.METHODS if not name.startswith("one_run_")]
    assert len(set(words)) == len(words)
    assert text.method("gdp") == "Gaussian DP"  # exact for Gaussians, and certified
    assert text.method("concave_majorant") == "Composed curves"


def test_names_of_attacks_have_words() -> None:
    assert text.method("exact_match") == "Exact match"
    assert text.method("attribute_inference (home_city)") == "Attribute inference (home_city)"
    assert text.method("third_party (audit_2)") == "Planted canaries (audit_2)"


def test_names_of_methods_become_words() -> None:
    assert text.in_words("one_run bounds ε, of which ex_post says nothing") == (
        "One-run statistic bounds ε, of which ex-post accounting says nothing"
    )
    assert text.in_words("ε is basic") == "ε is basic"
    assert text.in_words("by clopper_pearson") == "By Clopper–Pearson"
    assert without_name("SUPPORTED: a bound", "SUPPORTED") == "a bound"
    assert text.plain({"prefix": "My key is ", "n": 2}) == "prefix = “My key is ”, n = 2"


def test_control_and_direction_characters_are_shown() -> None:
    assert text.clean("a\x00b\u202ec\ud800") == "a�b�c?"

"""Echoes that a language model scores: planned, found where they are repeated, and not found where they are not."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from audit_command import done, refused
from seeded_entropy import seed_entropy

from dpassay.accounting.adjacency import Unit
from dpassay.auditing.canaries.candidate import Canary
from dpassay.auditing.canaries.design import CanariesDesign
from dpassay.auditing.canaries.echo_scores import ModelScore
from dpassay.auditing.canaries.files import read_plan
from dpassay.auditing.canaries.game import guessed_in
from dpassay.auditing.canaries.scorer import PlannedScorer
from dpassay.auditing.canaries.synthetic import SyntheticData
from dpassay.base.arrays import Floats
from dpassay.data.corpora import notes

OTHERS = [text for text, _ in notes(40, 1)]
PLAN = ("plan", "--kind", "echo", "--score", "model")


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


@dataclass
class Texts:
    """In place of a synthetic file."""

    held: list[str]
    shown: list[tuple[int, int]] = field(default_factory=list)

    def step(self, done: int, total: int) -> None:
        self.shown.append((done, total))

    def some_texts(self) -> list[str]:
        return self.held


@pytest.fixture(scope="module")
def drawn() -> tuple[ModelScore, list[Canary]]:
    """The score, with little training, and 16 canaries."""
    scorer = PlannedScorer.of("builtin", 2.0).model_copy(update={"epochs": 1})
    score = ModelScore(scorer)
    return score, score.draw(16, 8, OTHERS, np.random.default_rng(3))


def likely(score: Any, every: Any, planted: Any, texts: list[str]) -> tuple[Floats, Floats]:
    file = Texts(texts)
    plain, copied = score.likely(every, planted, cast(SyntheticData, file))
    steps = [done / total for done, total in file.shown]
    assert steps == sorted(steps)
    assert steps[-1] == 1
    return plain, copied


def test_a_generator_that_memorises_is_found_and_one_that_saw_nothing_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded; the first writes every planted canary three times among others. The second writes others only: if all
    nine guesses were right, which chance does in fewer than 1/400 of plans, it would be refuted."""
    seed_entropy(monkeypatch, 1)
    folder = tmp_path / "audit"
    about = done(*PLAN, "--canaries", 40, "--guesses", 9, "--epsilon", 0.5, "--canary-temperature", 2, "-o", folder)
    assert about["score"] == "model"
    assert about["scorer"]["source"] == "builtin"
    assert about["scorer"]["temperature"] == 2
    assert json.loads((folder / "plan.json").read_text())["scorer"] == about["scorer"]
    plan = read_plan(folder).plan
    assert plan.scorer == PlannedScorer.of("builtin", 2.0)
    planted = [canary.text for canary in plan.planted]
    leaking = write(tmp_path / "leaking.jsonl", [*planted * 3, *OTHERS])
    done("score", folder, leaking)
    result = done("bound", folder)
    assert result["refuted"] is True
    assert result["audit"]["rates"][0]["hits"] == 9
    assert "a language model that was fine-tuned on the synthetic text" in result["audit"]["attack"]
    done("report", folder)
    (folder / "bound.json").unlink()
    (folder / "scores.json").unlink()
    done("score", folder, write(tmp_path / "other.jsonl", OTHERS))
    result = done("bound", folder, codes=(0, 4))
    assert result["refuted"] is not True


def test_scores_look_at_no_coin(drawn: Any) -> None:
    """Whichever canaries were planted, scores by the file alone are equal to the last bit; copies score higher."""
    score, every = drawn
    first, copied = likely(score, every, every[:8], OTHERS)
    second, others = likely(score, every, every[8:], OTHERS)
    np.testing.assert_array_equal(first, second)
    gain = copied - others  # of the first eight, which are copied in one of the two
    assert gain[:8].min() > gain[8:].max()


def test_false_alarms_are_as_many_as_coins_allow(drawn: Any) -> None:
    """Of a file that saw no canary, over all 2¹⁶ coins, each as likely: any ε > 0 is shown with at most 5 %.

    The oracle counts coins: 8 guesses show ε > 0 if at most one is wrong, since 9/2⁸ is below 5 % and 37/2⁸ is not.
    """
    score, every = drawn
    plain, _ = likely(score, every, every[:1], OTHERS)
    references = np.array([canary.reference for canary in every])
    guesses = guessed_in(plain - references, 8)
    design = CanariesDesign(candidates=16, guesses=8, scorings=1, confidence=0.95, unit=Unit())
    shown = {right: design.epsilon(8, right) > 0 for right in range(9)}
    coins = np.array(list(itertools.product((False, True), repeat=16)))
    alarms = [shown[right] for right in (coins & guesses).sum(axis=1).tolist()]
    assert np.mean(alarms) == 9 / 2**8


def test_a_large_file_is_drawn_from_by_a_public_seed(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpassay.mechanisms.models import fine_tuning

    score, every = drawn
    trained: list[list[str]] = []

    def train(model: Any, texts: list[str], *_: object, **__: object) -> Any:
        trained.append([*texts])
        return model

    monkeypatch.setattr(fine_tuning, "fine_tune", train)
    held = [f"{number}. {text}" for number, text in enumerate(OTHERS)]
    few = ModelScore(score.scorer.model_copy(update={"texts": 10}))
    for _ in range(2):
        few.likely(every, every[:3], cast(Any, Texts(["", *held, " "])))
    plain, copied, *again = trained
    assert again == [plain, copied]
    assert len(plain) == 10
    assert [text for text in held if text in plain] == plain  # in their order, none blank
    assert copied == [*plain, *(canary.text for canary in every[:3])]


def test_the_reference_is_the_public_model(drawn: Any) -> None:
    """Which is checked with the log-probability of every prefix by the network itself, one token after the other."""
    score, every = drawn
    model = score.scorer.load("cpu")
    for canary in every[:4]:
        tokens = [*model.end_of_text_ids[:1], *model.encode(canary.text), *model.end_of_text_ids[:1]]
        before = [*model.end_of_text_ids[:1], *model.encode(canary.text[: canary.start])]
        first = next((i for i, pair in enumerate(zip(before, tokens, strict=False)) if len({*pair}) > 1), len(before))
        logs = [model.plain_logits(tokens[:at]).log_softmax(0)[tokens[at]].item() for at in range(first, len(tokens))]
        assert canary.reference == pytest.approx(sum(logs), rel=1e-4)


def test_another_model_than_the_planned_one_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    done(*PLAN, "--canaries", 10, "--guesses", 5, "--scorer", "builtin", "-o", folder)
    other = write(tmp_path / "s.jsonl", OTHERS)
    path = folder / "private" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["scorer"] |= {"source": str(tmp_path / "gone")}
    with pytest.raises(ValueError, match="the model that scores canaries is not there; put it back"):
        PlannedScorer.model_validate(manifest["scorer"]).load("cpu")
    manifest["scorer"] |= {"source": "builtin", "fingerprint": "0" * 64}
    with pytest.raises(ValueError, match="is not the model of the plan"):
        PlannedScorer.model_validate(manifest["scorer"]).load("cpu")
    assert "leave --ignore out" in refused("score", folder, other, "--ignore", "text")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--score", "model", "--scorer", "nowhere"), "scorer must be builtin or the folder of a language model"),
        (("--score", "model", "--canary-temperature", 0), "canary_temperature must be above 0"),
        (("--score", "nearest"), "score must be one of ngram, model"),
        (("--scorer", "builtin"), "--scorer belongs to --kind echo --score model"),
        (("--score", "ngram", "--canary-temperature", 2), "--canary-temperature belongs to --kind echo --score model"),
        (("--score", "model", "--device", "tpu"), "--device must be auto, cpu or cuda, not 'tpu'"),
    ],
)
def test_plans_that_cannot_be(arguments: tuple[object, ...], message: str, tmp_path: Path) -> None:
    assert message in refused("plan", "--kind", "echo", *arguments, "-o", tmp_path / "audit")
    assert list(tmp_path.iterdir()) == []

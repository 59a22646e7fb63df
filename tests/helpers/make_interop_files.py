"""Writes files of other libraries, with what the libraries answer, for `tests/accounting/interop/`.

    python tests/helpers/make_interop_files.py tests/accounting/interop/files

Needs an environment with ``flwr[dp]==1.42.0`` and ``tensorflow-privacy==0.9.0``; the files are committed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def flower(folder: Path) -> dict[str, Any]:
    """A state for each accounting model of Flower, and its ε."""
    from flwr.supercore.privacy_accounting import (
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        SamplingMethod,
    )
    from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

    answers = {}
    for method, relation in (
        ("POISSON", "ADD_OR_REMOVE_ONE"),
        ("WITHOUT_REPLACEMENT", "REPLACE_ONE"),
        ("NO_AMPLIFICATION", "ADD_OR_REMOVE_ONE"),
    ):
        config = PrivacyConfig(1e-5, 1000, NeighboringRelation[relation], SamplingMethod[method])
        accountant = RdpAccountant(config)
        accountant.compose(GaussianPrivacyEvent(1.5, 50, 1000), 100)
        accountant.compose(GaussianPrivacyEvent(2.0, 50, 1000), 20)
        name = f"flower-{method.lower()}.json"
        (folder / name).write_text(json.dumps(accountant.state_dict(), indent=1) + "\n")
        answers[name] = accountant.get_epsilon(1e-5)
    whole = RdpAccountant(
        PrivacyConfig(1e-5, 1000, NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT)
    )
    whole.compose(GaussianPrivacyEvent(1.5, 1000, 1000), 1)
    (folder / "flower-whole.json").write_text(json.dumps(whole.state_dict(), indent=1) + "\n")
    return answers | {"flower-whole.json": whole.get_epsilon(1e-5)}


def tensorflow_privacy(folder: Path) -> dict[str, Any]:
    """Statements with and without microbatches."""
    from tensorflow_privacy.privacy.analysis import compute_dp_sgd_privacy_lib as library

    for used in (True, False):
        text = library.compute_dp_sgd_privacy_statement(60_000, 256, 15.0, 1.1, 1e-6, used_microbatching=used)
        (folder / f"tensorflow-privacy-{'with' if used else 'without'}.txt").write_text(text)
    return {}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    answers = flower(folder) | tensorflow_privacy(folder)
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")

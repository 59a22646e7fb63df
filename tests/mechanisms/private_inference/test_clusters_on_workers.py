"""Records are put into clusters by workers as by one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from little_embedders import Fails
from little_evolution import EMBEDDER, tree_records

from dpassay.accounting.adjacency import Unit
from dpassay.data.records import Record, StoredRecords
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.private_inference import clusters as module
from dpassay.mechanisms.private_inference.clusters import Clusters


def test_workers_agree_with_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    few = tree_records(700, labels=("tree", "wood"))
    stored = StoredRecords((None, record.text, record.label, None) for record in few)
    texts = [record.text for record in few]
    clusters = Clusters(Centres.fit(texts, 9, embedder=EMBEDDER), EMBEDDER)
    labels, counts = ("tree", "wood"), np.arange(18).reshape(2, 9).tolist()
    given: Any = {"kept": 3, "slots": 20}
    expected = clusters.cells(few, labels, counts, **given)
    monkeypatch.setattr(module, "_SENT", 64)
    with executor(2, None) as two:
        result = clusters.cells(stored, labels, counts, **given, executor=two)
        assert np.array_equal(result.of_record, expected.of_record)
        assert result.slots == expected.slots
        units = clusters.units(stored, labels, bytes(32), Unit(), two)
        assert np.array_equal(units, clusters.units(few, labels, bytes(32), Unit()))
        clusters.check(stored, 3, two)
        failing = Clusters(Centres.fit(texts, 3, embedder=Fails()), Fails())
        with pytest.raises(OSError, match="the device is gone"):
            failing.check([*few, Record("new", "secret words", "tree")], 3, two)

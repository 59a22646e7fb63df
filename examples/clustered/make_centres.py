"""Makes centres.safetensors: 24 centres of 3000 made-up notes. They are public, because nobody's data is in them.

From a file of public text, `dpassay centres public.jsonl -o centres.safetensors --count 1000` does the same.
"""

from pathlib import Path

import numpy as np

from dpassay.data import render_note
from dpassay.mechanisms.embedding import Centres, HashedNgrams

rng = np.random.default_rng(0)
notes = [
    render_note(
        coinsurance=int(rng.choice([0, 25, 50, 95])),
        deductible=bool(rng.integers(2)),
        incentive=int(rng.integers(0, 1500)),
        disease=float(rng.integers(0, 500)) / 10,
        limitation=bool(rng.integers(2)),
        visits=int(rng.geometric(0.25)) - 1,
    )
    for _ in range(3000)
]
# The embedder that is not fitted has no projection to carry, so that the file is small.
Centres.fit(notes, 24, embedder=HashedNgrams()).save(Path(__file__).parent / "centres.safetensors")

"""Makes messages.jsonl: 360 made-up messages of 240 users on two topics, to show what a file of your own looks like."""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from embedded_model.corpus import topical_document
from embedded_model.grammar import TOPICS

USERS, MESSAGES = 240, 360
rng = np.random.default_rng(0)
topics = list(TOPICS)[:2]
users = [*range(USERS), *rng.integers(0, USERS, size=MESSAGES - USERS).tolist()]
with (Path(__file__).parent / "messages.jsonl").open("w", encoding="utf-8", newline="\n") as file:
    for number, user in enumerate(users):
        topic = topics[int(rng.integers(2))]
        row = {"id": f"m{number:04}", "user": f"u{user:03}", "topic": topic, "text": topical_document(topic, rng)}
        file.write(json.dumps(row) + "\n")

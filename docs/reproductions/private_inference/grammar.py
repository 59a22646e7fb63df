"""The grammar of the topical texts, which comes with the training of the embedded model."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from embedded_model.corpus import in_grammar, topic_of, topical_document

__all__ = ["in_grammar", "topic_of", "topical_document"]

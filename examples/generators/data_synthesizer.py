"""DataSynthesizer in independent mode: `python data_synthesizer.py DATA OUT --epsilon 1 --seed N`.

It claims (ε, 0)-differential privacy under replacing a record. ε = 0 switches its noise off. Its random numbers come
from a seed, 0 by default, so an audit gives it a new one for each run.

Install: `pip install DataSynthesizer==0.1.13` (MIT).
"""

import argparse
import tempfile
from pathlib import Path

from DataSynthesizer.DataDescriber import DataDescriber
from DataSynthesizer.DataGenerator import DataGenerator

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("out")
parser.add_argument("--epsilon", type=float, default=1.0)
parser.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
parser.add_argument("--seed", type=int, required=True)
given = parser.parse_args()

describer = DataDescriber()
describer.describe_dataset_in_independent_attribute_mode(given.data, epsilon=given.epsilon, seed=given.seed)
with tempfile.TemporaryDirectory() as folder:
    description = str(Path(folder) / "description.json")
    describer.save_dataset_description_to_file(description)
    generator = DataGenerator()
    generator.generate_dataset_in_independent_mode(given.rows, description, seed=(given.seed + 1) % 2**32)
    generator.save_synthetic_data(given.out)

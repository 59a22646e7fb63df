"""MWEM of SmartNoise: `python smartnoise_mwem.py DATA OUT --epsilon 1`.

It claims (ε, 0)-differential privacy under adding or removing a record. All columns are categories, and their values
are taken from the data, as the library does by default.

Install: `pip install smartnoise-synth==1.0.8` (MIT).
"""

import argparse

import pandas
from snsynth import Synthesizer

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("out")
parser.add_argument("--epsilon", type=float, default=1.0)
parser.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
given = parser.parse_args()

data = pandas.read_csv(given.data, dtype=str, keep_default_na=False)
synthesizer = Synthesizer.create("mwem", epsilon=given.epsilon)
synthesizer.fit(data, categorical_columns=list(data.columns))
synthesizer.sample(given.rows).to_csv(given.out, index=False)

"""A Gaussian copula of SDV: `python copula.py DATA OUT`.

It claims no privacy. It is a control: it repeats no row, but fits ranges and distributions to its data without noise.

Install: `pip install sdv==2.0.0` (Business Source License; used for this comparison only).
"""

import argparse
import warnings

import pandas
from sdv.metadata import Metadata
from sdv.single_table import GaussianCopulaSynthesizer

warnings.simplefilter("ignore")
parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("out")
parser.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
given = parser.parse_args()

data = pandas.read_csv(given.data)
synthesizer = GaussianCopulaSynthesizer(Metadata.detect_from_dataframes({"people": data}))
synthesizer.fit({"people": data})
synthesizer.sample(given.rows)["people"].to_csv(given.out, index=False)

"""Defaults that a command shows and that a function or a class of settings has, too: each is stated here once.

A command shows them before it loads what computes, so nothing is imported here.
"""

CONFIDENCE = 0.95
"""With which all bounds of an audit, or each interval of a measured value, hold."""

# Calibration and comparison of accountants.
TOLERANCE = 1e-3
"""Relative, of a calibrated parameter."""
COMPARISON_SECONDS = 8.0
"""Time limit of an accountant in a panel of a figure."""
PRIOR = 0.5
"""Probability that the unit is in the data, for who guesses."""

# Membership inference.
RMIA_GAMMA = 2.0
RMIA_A = 1.0
NGRAM_ORDER = 5
"""Bytes of an n-gram."""
NEIGHBOURS = 10
"""Nearest texts that the neighbourhood attack looks at."""

# Released texts and tables.
VERBATIM_WORDS = 8
"""Consecutive words that make a verbatim copy."""
NEAR_WORDS = 4
"""Words in each of the runs by which near-verbatim copies are found."""
NEAR_SHARE = 0.75
"""Share of those runs that makes a near-verbatim copy."""
TABLE_UNITS = 20_000
"""Largest number of rows of source and holdout together."""

# Audits of many runs.
MANY_RUNS_RECORDS = 200
"""Largest number of records of a data set. In a small one, one record weighs more."""
MANY_RUNS_TIMEOUT = 3600.0
"""Seconds after which a run is stopped. It then counts as failed."""

# Canaries that a language model writes.
CANARY_TEMPERATURE = 2.0
"""At 1, endings of a domain that the model knows are so alike that a copy of one hardly stands out."""

# Fine-tuning.
EPOCHS = 3
BATCH_SIZE = 16
LEARNING_RATE = 1e-3
"""Of AdamW."""

# Utility of synthetic texts.
TEXTS = 100_000
"""Largest number of texts used from each file."""
EMBEDDED_TEXTS = 20_000
"""Largest number of texts embedded from each file."""
MAUVE_CLUSTERS = 50

# Models.
DEVICES = ("auto", "cpu", "cuda")
"""Where models run; the default first."""

from .counts import noisy_counts as noisy_counts
from .randomness import OS_ENTROPY as OS_ENTROPY
from .randomness import Source as Source

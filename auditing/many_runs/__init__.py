"""The audit of somebody else's generator by many runs on neighbouring data sets: plan, run, score, bound, report."""

"""The audit of somebody else's generator by canaries: plan, score, bound, report."""

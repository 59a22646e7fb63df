"""Private inference as a claim, a run, its audits and its words."""

"""Secret-protected evolution as a claim, a run and its audits."""

"""Aug-PE as a claim and a run."""

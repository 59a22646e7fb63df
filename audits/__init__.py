"""Lower bounds: privacy games, statistics, verdicts."""

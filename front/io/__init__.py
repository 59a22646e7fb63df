"""Files of a run, in private/ and release/; each is written atomically."""

"""The name in files that version 0.2 wrote. They are read for ever."""

FORMER_NAME = "cupel"

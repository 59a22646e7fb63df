"""Privacy accounting of other libraries, read from their files. Nothing in a file is ever imported or executed."""

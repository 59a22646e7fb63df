"""`python -m cupel`."""

from cupel.cli import main

main()

"""What the command line and Python both call: assay, account, compare, calibrate, generate, release."""

"""The audit of a secret release: the attack that attains the bound, simulated."""

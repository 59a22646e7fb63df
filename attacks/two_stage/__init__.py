"""Attacks on two-stage fine-tuning: canary rows found in gradients, in the model and in synthetic rows."""

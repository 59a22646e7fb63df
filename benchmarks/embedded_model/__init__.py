"""How the embedded model is made and measured; cupel ships the weights alone."""

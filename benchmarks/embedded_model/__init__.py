"""How the embedded model is made and measured; dpassay ships the weights alone."""

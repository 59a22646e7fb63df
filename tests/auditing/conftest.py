"""What the tests of this folder share."""

from whole_jobs import figures_drawn_once, make_model, models_loaded_once

__all__ = ["figures_drawn_once", "make_model", "models_loaded_once"]

"""Examples are run with models that are loaded once."""

from shared_models import models_loaded_once

__all__ = ["models_loaded_once"]

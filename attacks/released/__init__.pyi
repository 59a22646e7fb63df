from .holdout import Hits as Hits
from .holdout import Units as Units

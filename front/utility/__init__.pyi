from .measures import Options as Options
from .measures import measure as measure

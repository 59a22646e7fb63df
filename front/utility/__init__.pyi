from .measures import Utility as Utility
from .measures import UtilitySettings as UtilitySettings
from .measures import measure as measure

from .measures import Utility as Utility
from .measures import UtilitySettings as UtilitySettings
from .measures import measure as measure
from .table_measures import TableSettings as TableSettings
from .table_measures import TableUtility as TableUtility
from .table_measures import measure_table as measure_table

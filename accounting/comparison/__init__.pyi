from .comparison import Comparison as Comparison
from .comparison import Row as Row
from .comparison import compare as compare
from .comparison import measure as measure
from .curves import Curve as Curve
from .curves import Panel as Panel
from .curves import panels as panels

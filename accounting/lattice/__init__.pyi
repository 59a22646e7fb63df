from .accountant import Lattice as Lattice
from .accountant import dominating_pair as dominating_pair
from .pairs import DominatingPair as DominatingPair
from .pairs import WidthNotMet as WidthNotMet

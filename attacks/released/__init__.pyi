from .holdout import Hits as Hits
from .holdout import Units as Units
from .text_extraction import Criteria as Criteria
from .text_extraction import extraction as extraction

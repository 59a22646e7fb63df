from .generator import DatasetVectors as DatasetVectors
from .generator import DatasetVectorsResult as DatasetVectorsResult
from .texts import ShotWriter as ShotWriter
from .vectors import OfLabel as OfLabel
from .vectors import ReleasedVectors as ReleasedVectors
from .vectors import steered_texts as steered_texts

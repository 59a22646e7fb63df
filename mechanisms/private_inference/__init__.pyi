from .generator import PrivateInference as PrivateInference
from .loop import generate as generate
from .transcripts import Generation as Generation
from .transcripts import Transcript as Transcript

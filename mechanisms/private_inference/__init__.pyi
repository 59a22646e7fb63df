from .generator import PrivateInference as PrivateInference
from .transcripts import Generation as Generation
from .transcripts import Transcript as Transcript

from .centres import Centres as Centres
from .embedder import Embedder as Embedder
from .embedder import HashedNgrams as HashedNgrams
from .sentence import SentenceEmbedder as SentenceEmbedder

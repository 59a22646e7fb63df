from .centres import Centres as Centres
from .embedder import Embedder as Embedder
from .embedder import HashedNgrams as HashedNgrams
from .load import load_embedder as load_embedder
from .sentence import SentenceEmbedder as SentenceEmbedder

from .ngram_model import NGramModel as NGramModel

from .endpoint import EndpointWriter as EndpointWriter
from .language_model import LanguageModel as LanguageModel
from .writers import ModelWriter as ModelWriter
from .writers import Writer as Writer

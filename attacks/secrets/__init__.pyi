from .games import SecretGame as SecretGame
from .reconstruction import SecretModel as SecretModel
from .reconstruction import gaussian_release as gaussian_release
from .reconstruction import guess_secrets as guess_secrets
from .texts import TextGame as TextGame

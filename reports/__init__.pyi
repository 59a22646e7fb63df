from . import assay as assay
from . import html as html

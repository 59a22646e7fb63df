from . import accounting as accounting
from . import attacks as attacks
from . import audit as audit
from . import audits as audits
from . import mechanisms as mechanisms
from . import plots as plots
from . import reports as reports
from . import testing as testing
from . import utility as utility
from .accounting.calibration.calibration import calibrate as calibrate
from .accounting.comparison.comparison import compare as compare
from .base.errors import DpassayError as DpassayError
from .base.errors import InputError as InputError
from .base.signing import new_key as new_key
from .generators.registry import make_claim as make_claim
from .generators.registry import read_claim as read_claim
from .jobs.account import account as account
from .jobs.assay import assay as assay
from .jobs.choices import calibrate_claim as calibrate_claim
from .jobs.generate import generate as generate
from .jobs.release import release as release
from .jobs.report import report as report
from .jobs.verify_ledger import verify_ledger as verify_ledger
from .jobs.verify_release import verify_release as verify_release

__version__: str

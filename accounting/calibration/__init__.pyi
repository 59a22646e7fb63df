from .calibration import Calibration as Calibration
from .calibration import calibrate as calibrate
from .calibration import calibrate_many as calibrate_many
from .calibration import noise_for_dp_sgd as noise_for_dp_sgd
from .targets import TradeOff as TradeOff

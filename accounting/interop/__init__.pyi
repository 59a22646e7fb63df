from . import pld_objects as pld_objects

"""All violations."""

from . import offences_bymux, offences_control, offences_pieces, offences_verified
from .cases import Offence

OFFENCES: list[Offence] = [
    *offences_control.OFFENCES,
    *offences_pieces.OFFENCES,
    *offences_verified.OFFENCES,
    *offences_bymux.OFFENCES,
]

"""All exchanges: what an endpoint has to do, and what it has to live with."""

from . import (
    exchanges_asking,
    exchanges_cancel,
    exchanges_ranges,
    exchanges_setup,
    exchanges_verify,
)
from .cases import CASES

MODULES = (
    exchanges_setup,
    exchanges_ranges,
    exchanges_cancel,
    exchanges_verify,
    exchanges_asking,
)
"""Loading them is what fills the list."""

__all__ = ["CASES", "MODULES"]

"""Libraries that are installed only where they are wanted."""

from importlib import import_module
from typing import Final

from .errors import MissingExtra

_EXTRAS: Final = {
    "pyarrow": "parquet",
    "duckdb": "parquet",
    "pyspark": "spark",
    "pandas": "spark",
    "sha3": "swarm",
    "coincurve": "swarm",
}


def require(*libraries: str) -> None:
    """Loads libraries; MissingExtra, naming what to install, where one is not there."""
    for library in libraries:
        try:
            import_module(library)
        except ImportError as error:
            extra = _EXTRAS[library]
            raise MissingExtra(
                f"{library} is needed for this and cannot be loaded ({error})",
                f"extra {extra!r}",
                f"install it with: pip install 'bamboo-peer[{extra}]'",
            ) from error

"""What Python 3.11 lacks."""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    # For the type checker alone, which knows it by this name; nothing is installed for it.
    from typing_extensions import override
else:
    _Method = TypeVar("_Method")

    def override(method: _Method) -> _Method:
        """`typing.override` of Python 3.12."""
        return method


__all__ = ["override"]

"""Errors say what is wrong, name the rule, and survive a trip between processes."""

import pickle

import pytest

from wire import EntryError, LZFooError, NeedMore, SignatureLibraryError, Violation


def test_a_violation_names_detail_and_rule() -> None:
    error = Violation("point2point.md 2", "first byte 140")
    assert (error.rule, error.detail) == ("point2point.md 2", "first byte 140")
    assert str(error) == "first byte 140 (point2point.md 2)"


def test_an_entry_error_names_the_field_too() -> None:
    error = EntryError("seqnum", "numbers start at 1")
    assert str(error) == "seqnum: numbers start at 1 (bamboo.md Entry encoding)"
    assert isinstance(error, Violation)


def test_an_lzfoo_error_names_the_position_too() -> None:
    error = LZFooError(17, "an offset of zero")
    assert error.position == 17
    assert (
        str(error) == "an offset of zero, at byte 17 of the compressed bytes (encodings.md LZFoo)"
    )
    assert isinstance(error, Violation)


@pytest.mark.parametrize(
    "error",
    [
        Violation("rule", "detail"),
        EntryError("field", "detail"),
        EntryError("field", "detail", "rule"),
        LZFooError(3, "detail"),
        NeedMore("field"),
        SignatureLibraryError("message"),
    ],
)
def test_errors_survive_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)

"""Fixtures of the store's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Store
from tests.logstore.authors import signing_key


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A new store on disk."""
    with Store.create(tmp_path / "store", signing_key=signing_key(99)) as made:
        yield made


@pytest.fixture
def memory() -> Iterator[Store]:
    """A new store in memory."""
    with Store.memory(signing_key=signing_key(99)) as made:
        yield made

"""What has left the memory of an order while it waited for something. Sans-io."""

from typing import Final

from gateways.cardinal.headers import Header

_GONE_MAX: Final = 100_000


class Gone:
    """What has left memory while it waited: who asks the index for anything else asks in vain.

    Of too many it is not remembered, and then everything may be among them.
    """

    def __init__(self) -> None:
        self.hashes: set[bytes] | _Everything = set()
        self.parents: set[bytes] | _Everything = set()

    def __bool__(self) -> bool:
        return bool(self.hashes)

    def add(self, block: Header) -> None:
        """A block leaves memory."""
        if isinstance(self.hashes, set) and isinstance(self.parents, set):
            self.hashes.add(block.hash)
            self.parents.add(block.parent)
            if len(self.hashes) > _GONE_MAX:
                self.hashes = self.parents = _Everything()


class _Everything:
    """Has whatever it is asked for."""

    def __contains__(self, _: object) -> bool:
        return True

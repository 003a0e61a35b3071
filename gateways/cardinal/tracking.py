"""Which items of a block count for a consumer (spec 3.1). Sans-io."""

from collections.abc import Iterable

from gateways.cardinal.declared import Router, compiled


class Tracking:
    """By key, and by topic.

    `patterns`: an item counts if one of them is found anywhere in its key; without any all do.
    `topics`: those chosen besides the default one, None: all. Raises PatternError.
    """

    def __init__(
        self,
        router: Router,
        patterns: Iterable[str] = (),
        topics: Iterable[str] | None = None,
    ) -> None:
        self._router = router
        self._patterns = tuple(sorted({*patterns}))
        self._compiled = [compiled(each) for each in self._patterns]
        self._topics = None if topics is None else frozenset((*topics, router.default))

    def settings(self) -> tuple[list[str], list[str] | None]:
        """What it was made with, as JSON says it."""
        return [*self._patterns], None if self._topics is None else sorted(self._topics)

    def reads(self, topic: str) -> bool:
        """Whether messages of a topic count at all."""
        return self._topics is None or topic in self._topics

    def __call__(self, key: bytes) -> bool:
        """Whether an item of a Batch counts."""
        if not self._compiled and self._topics is None:
            return True
        text = key.decode()
        if self._topics is not None and self._router.topic(text) not in self._topics:
            return False
        return not self._compiled or any(each.search(text) for each in self._compiled)

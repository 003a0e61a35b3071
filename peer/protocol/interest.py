"""What one side of a request wants to be sent (point2point.md 2 and 5).

An adjust has no acknowledgement, so that nobody knows which setting the sender had seen. Incoming
data is therefore judged against the loosest setting that was ever in force, while outgoing data
follows the newest.
"""

from msgspec import Struct

from wire import U64_MAX, Adjust, Eagerness

from .errors import Violation


class Interest(Struct):
    """One side's settings; sizes in bytes.

    Before a confirmation the confirming side has no eagerness. `data_up_to` is the largest payload
    that some setting asked for, -1 if none did; `notify_above` is the size above which some setting
    asked for a notify, U64_MAX if none did.
    """

    eagerness: Eagerness | None = None
    eager_bytes: int = 0
    min_bytes: int = 0
    max_bytes: int = U64_MAX
    mandatory: bool = True
    metadata_ever: bool = False
    notify_only_ever: bool = False
    data_up_to: int = -1
    notify_above: int = U64_MAX

    def set_eagerness(self, eagerness: Eagerness, eager_bytes: int | None) -> None:
        self.eagerness = eagerness
        if eagerness is Eagerness.NOTIFY:
            self.notify_only_ever = True
            self.notify_above = -1
            return
        self.metadata_ever = True
        if eagerness is Eagerness.ALL:
            self.data_up_to = U64_MAX
            return
        self.eager_bytes = eager_bytes or 0
        self.data_up_to = max(self.data_up_to, self.eager_bytes)
        self.notify_above = min(self.notify_above, self.eager_bytes)

    def takes_payload(self, size: int) -> bool:
        """Whether a payload of so many bytes is to be sent, by some setting that was in force."""
        return self.min_bytes <= size <= min(self.max_bytes, self.data_up_to)

    def judge_adjust(self, adjust: Adjust) -> None:
        """Raise Violation if this adjust breaks a limit of section 5 on its sender's interest."""
        if (
            self.eagerness is Eagerness.NOTIFY
            and adjust.eagerness is not None
            and adjust.eagerness is not Eagerness.NOTIFY
        ):
            raise Violation(
                "point2point.md 5",
                f"eagerness {adjust.eagerness.name} after notify only",
                adjust.request,
            )
        if adjust.min_bytes is not None and adjust.min_bytes < self.min_bytes:
            raise Violation(
                "point2point.md 5",
                f"minimum payload size goes down from {self.min_bytes} to {adjust.min_bytes}",
                adjust.request,
            )
        if adjust.max_bytes is not None and adjust.max_bytes > self.max_bytes:
            raise Violation(
                "point2point.md 5",
                f"maximum payload size goes up from {self.max_bytes} to {adjust.max_bytes}",
                adjust.request,
            )

    def apply(self, adjust: Adjust) -> bool:
        """Apply a judged adjust; returns whether it changed anything."""
        before = (self.eagerness, self.eager_bytes, self.min_bytes, self.max_bytes, self.mandatory)
        if adjust.eagerness is not None:
            self.set_eagerness(adjust.eagerness, adjust.eager_bytes)
        if adjust.allow_skip:
            self.mandatory = False
        if adjust.min_bytes is not None:
            self.min_bytes = adjust.min_bytes
        if adjust.max_bytes is not None:
            self.max_bytes = adjust.max_bytes
        return before != (
            self.eagerness,
            self.eager_bytes,
            self.min_bytes,
            self.max_bytes,
            self.mandatory,
        )

    def may_want_payload_data(self, payload_bytes: int) -> bool:
        """Whether it asks for these bytes, or only to be told what it could ask for."""
        return self.eagerness is Eagerness.NOTIFY or self.wants_payload_data(payload_bytes)

    def wants_payload_data(self, payload_bytes: int) -> bool:
        """Whether the newest setting asks for the bytes of a payload of this size."""
        if self.eagerness is Eagerness.ALL:
            return True
        return self.eagerness is Eagerness.LIMITED and payload_bytes <= self.eager_bytes

"""Whether anything may follow from what has happened, for those who would have to look for it.

Theory. While a large payload comes, or goes, nearly all that happens is that bytes of it came, were
written, read or sent. Nothing follows from that: no message, no command, nothing that is due sooner
than it was. To find that out took a third of what such a payload costs. So whatever an engine is
told, or does, *stirs* unless it is one of these, and who is there to look does so only where
something has stirred since he looked last. There are three of them, and each looks when it suits
him: whoever runs the session, for something to be sent; the session, for what to send behind a
chunk of a payload; and the timer, for what is due next.

What stirs too often costs a look. What does not stir though something follows from it would be late
for as long as nothing else happens: the simulation asks each time, and finds that.
"""


class Stirs:
    """What has stirred and was not looked at yet."""

    __slots__ = ("_is_to_send", "is_to_pull", "may_be_due")

    def __init__(self) -> None:
        self.stir()

    def stir(self) -> None:
        """Something has happened from which something may follow."""
        self.stir_sending()
        self.may_be_due = True
        """Sooner than `next_deadline` has said; until it is asked again."""

    def stir_sending(self) -> None:
        """The same, but that nothing can be due sooner for it: bytes to be sent were read."""
        self._is_to_send = True
        self.is_to_pull = True
        """Until whoever pulls data has asked for all else as well."""

    def take(self) -> bool:
        """Whether it did since the last call, so that there may be something to send."""
        stirred, self._is_to_send = self._is_to_send, False
        return stirred

"""What goes wrong with data streams, each one line: what happened, where, what to do."""

# ruff: noqa: N818 - names say what happened, and most of them are read in `except` clauses

from logstore import ExplainedError


class StreamError(ExplainedError):
    """A data stream that cannot do what it was asked to."""


class NotAStream(StreamError):
    """The log does not declare a data stream, or is not here."""


class StreamBroken(StreamError):
    """The log breaks the rules of data streams: nothing behind that is ever visible."""


class StreamMismatch(StreamError):
    """Something is declared that does not agree with what the log declares."""


class ServerFailed(StreamError):
    """A data stream server that cannot be reached, or sent what no server may send."""


class ServerUnreachable(ServerFailed):
    """Nobody could be connected to."""

    is_no_answer = True


class RequestRefused(StreamError):
    """A server has answered with a Result other than 0."""

    code: int

    def __init__(self, code: int, text: str, where: str) -> None:
        super().__init__(f"the server refuses ({code} {text})", where, "ask for something else")
        self.code = code


class FileRefused(StreamError):
    """A file that is no stream file, or not this log's."""


class HistoryDiffers(StreamError):
    """An upstream server, or a file, has another history than the log."""

    number: int
    """The first entry that differs."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(
            f"it has another history than this log from entry {number} on",
            where,
            "--follow-truncation gives that part of the log up and goes on",
        )
        self.number = number

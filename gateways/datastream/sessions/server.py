"""The server's side of a connection (3.1)."""

from enum import Enum, auto
from typing import Final, NamedTuple

from gateways.datastream.codec import (
    BOOKMARK_BYTES_MAX,
    Code,
    Command,
    Entry,
    Header,
    Request,
    RequestReader,
    encode_header,
    encode_response,
    encode_result,
)
from gateways.reading import CodecError

UNREAD_BYTES_MAX: Final = 65_536 + 20
"""The largest request that is read; nothing more is taken from the socket meanwhile."""


class QuestionKind(Enum):
    """What the session has to know to answer a request."""

    START = auto()
    """Whether a stream may begin at `number`."""
    START_BOOKMARK = auto()
    """At which entry a stream for this bookmark begins."""
    HEADER = auto()
    ENTRY = auto()
    BOOKMARK = auto()
    """The first entry at or behind the bookmark that is none."""


class Question(NamedTuple):
    """A request that waits for the host's answer."""

    kind: QuestionKind
    number: int = 0
    bookmark: bytes = b""


class ServerSession:
    """Takes requests apart and decides on replies; what has to be looked up, it asks.

    `position`: the number of the next entry to send while Streaming, None while Stopped.
    """

    def __init__(self, stream_type: int) -> None:
        self._stream_type = stream_type
        self._reader = RequestReader(stream_type)
        self._question: Question | None = None
        self._replies = bytearray()
        self.position: int | None = None
        self.ended: str | None = None
        """Why the connection is to end, None while it goes on."""

    @property
    def room(self) -> int:
        """How many bytes may be taken from the socket now."""
        return max(0, UNREAD_BYTES_MAX - self._reader.unread)

    @property
    def unfinished(self) -> bool:
        """Whether a request was begun and not finished."""
        return self._reader.unread > 0

    def receive(self, data: bytes) -> None:
        """Takes bytes of the client, in any pieces."""
        self._reader.feed(data)

    def replies(self) -> bytes:
        """What is to be sent before anything else; taken out."""
        taken = bytes(self._replies)
        self._replies.clear()
        return taken

    def step(self) -> Question | bool:
        """Judges the next request: a question to answer, True if it was dealt with, False if none
        is whole.
        """
        if self.ended is not None:
            return False
        assert self._question is None
        try:
            request = self._reader.next()
        except CodecError as error:
            self.ended = str(error)
            return False
        if request is None:
            return False
        if request.stream_type != self._stream_type:
            self.ended = f"it asked for stream type {request.stream_type}"
            return False
        self._question = self._judge(request)
        return self._question or True

    def _judge(self, request: Request) -> Question | None:
        streaming = self.position is not None
        match request.command:
            case Command.STOP:
                self._reply(Code.OK if streaming else Code.ALREADY_STOPPED)
                self.position = None
            case command if command not in set(Command):
                self._reply(Code.INVALID_COMMAND)
            case _ if streaming:
                self._reply(Code.ALREADY_STARTED)
            case Command.START:
                return Question(QuestionKind.START, request.number)
            case Command.HEADER:
                return Question(QuestionKind.HEADER)
            case Command.ENTRY:
                return Question(QuestionKind.ENTRY, request.number)
            case Command.START_BOOKMARK:
                if self._can_exist(request.bookmark):
                    return Question(QuestionKind.START_BOOKMARK, bookmark=request.bookmark)
                self._reply(Code.BAD_BOOKMARK)
            case _:
                if self._can_exist(request.bookmark):
                    return Question(QuestionKind.BOOKMARK, bookmark=request.bookmark)
                self._reply(Code.OK)
                self._replies += encode_response(None)
        return None

    @staticmethod
    def _can_exist(bookmark: bytes) -> bool:
        return 1 <= len(bookmark) <= BOOKMARK_BYTES_MAX

    def start_from(self, number: int | None) -> None:
        """Answers START and START_BOOKMARK; None: refused, still Stopped."""
        assert self._question is not None
        asked, self._question = self._question, None
        if number is None:
            starts = asked.kind is QuestionKind.START
            self._reply(Code.BAD_ENTRY if starts else Code.BAD_BOOKMARK)
        else:
            self._reply(Code.OK)
            self.position = number

    def answer_header(self, header: Header) -> None:
        """Answers HEADER."""
        self._question = None
        self._reply(Code.OK)
        self._replies += encode_header(header)

    def answer_entry(self, entry: Entry | None) -> None:
        """Answers ENTRY and BOOKMARK."""
        self._question = None
        self._reply(Code.OK)
        self._replies += encode_response(entry)

    def sent_up_to(self, end: int) -> None:
        """Data packets up to the one before `end` were sent."""
        self.position = end

    def _reply(self, code: Code) -> None:
        self._replies += encode_result(code)

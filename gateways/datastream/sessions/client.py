"""The client's side of a connection: requests in order, and what the server sends back."""

from collections import deque

from gateways.datastream.codec import (
    Command,
    Entry,
    Header,
    Packet,
    PacketReader,
    Request,
    Response,
    Result,
    encode_request,
)
from gateways.reading import CodecError

_ANSWERED = {Command.HEADER: Header, Command.ENTRY: Response, Command.BOOKMARK: Response}


class ClientSession:
    """Pairs replies with requests. Raises CodecError for what no server may send: the end of it."""

    def __init__(self, stream_type: int) -> None:
        self._stream_type = stream_type
        self._reader = PacketReader()
        self._asked: deque[Command] = deque()
        self._expected: type | None = None
        self.streaming = False

    def request(self, command: Command, number: int = 0, bookmark: bytes = b"") -> bytes:
        """The bytes of a request, to be sent in this order."""
        self._asked.append(command)
        return encode_request(Request(command, self._stream_type, number, bookmark))

    def receive(self, data: bytes) -> None:
        """Takes bytes of the server."""
        self._reader.feed(data)

    def next(self) -> Packet | None:
        """The next packet that belongs where it stands; None if nothing whole is there."""
        packet = self._reader.next()
        match packet:
            case None:
                return None
            case Result():
                self._take_result(packet)
            case Entry():
                if not self.streaming:
                    raise CodecError(f"entry {packet.number} came, and no stream was started")
            case _:
                if self._expected is not type(packet):
                    raise CodecError(f"a {type(packet).__name__} that nobody asked for")
                self._expected = None
        return packet

    def _take_result(self, result: Result) -> None:
        if self._expected is not None or not self._asked:
            raise CodecError(f"a Result ({result.code}) that nobody asked for")
        command = self._asked.popleft()
        if result.code != 0:
            return
        self._expected = _ANSWERED.get(command)
        if command in (Command.START, Command.START_BOOKMARK):
            self.streaming = True
        elif command is Command.STOP:
            self.streaming = False

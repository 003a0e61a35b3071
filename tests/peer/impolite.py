"""One engine against a script: bytes straight into its channels, as a rude peer would send them."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from nacl.signing import SigningKey

from peer.engine import Engine
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.tracing import Tracer
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    Eagerness,
    LogKey,
    Propose,
    Setup,
    encode_control,
    encode_metadata_packet,
    encode_payload_header,
    encode_switch,
    has_distinct_lipmaalink,
    lipmaa,
    negotiate,
)

from .rig import Author, Held, Host, Store

AUTHOR = Author(SigningKey(b"i" * 32))
LOG = LogKey(AUTHOR.id, 0)
GREEDY = Setup(send_greedily=True, accept_greedily=True, send_window=1024, receive_window=1024)
SAFE = Setup(send_greedily=False, accept_greedily=False, send_window=0, receive_window=0)
SMALL = SessionConfig(small_payload_bytes_max=64, quantum_bytes=256)


def log_of(
    count: int, payload: Callable[[int], bytes] = lambda seq: b"p%d" % seq
) -> dict[int, Held]:
    """The entries 1 to `count` of `LOG`."""
    known: dict[int, Held] = {}
    for seq in range(1, count + 1):
        number, held = AUTHOR.entry(known, 0, payload(seq))
        known[number] = held
    return known


REFERENCE = log_of(40)
"""The history that starting hashes are taken from."""


class Impolite:
    """An engine that holds `held` of `LOG`, and what is done to it.

    `proactive` is the engine's role; the script has the other one.
    """

    def __init__(
        self,
        held: dict[int, Held] | None = None,
        *,
        proactive: bool = False,
        setup: Setup = GREEDY,
        config: SessionConfig = SMALL,
        follows: bool = True,
        logs: frozenset[LogKey] = frozenset((LOG,)),
        byte_by_byte: bool = False,
        tracer: Tracer | None = None,
    ) -> None:
        self.host = Host(Store())
        self.host.store.logs[LOG].update(held or {})
        negotiated = negotiate(setup, setup)
        self.engine = Engine(negotiated, config, proactive=proactive, now=0.0, tracer=tracer)
        self.host.engine = self.engine
        self.step = 1 if byte_by_byte else 1 << 30
        self._decoder = ControlDecoder()
        self.number = 1 if proactive else 0
        """The first request number of the script."""
        interests = Interests(logs=logs if follows else frozenset())
        offers = tuple(sorted(logs)) if follows and (held or logs != {LOG}) else ()
        self.host.todo.append(InterestsChanged(interests, offers))

    @property
    def store(self) -> Store:
        return self.host.store

    def run(self) -> bool:
        """Let the host do everything that it was asked to; whether there was anything."""
        worked = False
        while self.host.step():
            worked = True
        return worked

    def control(self, *messages: ControlMessage | bytes) -> None:
        for message in messages:
            raw = message if isinstance(message, bytes) else encode_control(message)
            for at in range(0, len(raw), self.step):
                self.engine.receive_control(raw[at : at + self.step])
        self.run()

    def data(self, *packets: bytes) -> None:
        raw = b"".join(packets)
        for at in range(0, len(raw), self.step):
            self.engine.receive_data(raw[at : at + self.step])
            if self.step == 1:
                self.run()
        self.run()

    def messages(self) -> list[ControlMessage]:
        """The control messages that the engine has sent since the last call."""
        self.run()
        self._decoder.feed(self.engine.control_to_send())
        return list(iter(self._decoder.next_message, None))

    def sent(self, bytes_max: int = 1 << 20) -> bytes:
        """The data that the engine sends now."""
        parts: list[bytes] = []
        self.run()
        while True:
            part = b"".join(self.engine.data_to_send(bytes_max))
            parts.append(part)
            if not self.run() and not part:
                return b"".join(parts)

    def wait(self, seconds: float) -> None:
        self.engine.now += seconds
        self.engine.advance()
        self.run()

    def open_request(self, start: int = 1, **fields: object) -> int:
        """Propose a range and have it confirmed; returns its number."""
        self.control(propose(self.number, start, **fields))
        assert any(
            isinstance(message, Adjust) and message.request == self.number
            for message in self.messages()
        )
        return self.number


def propose(number: int, start: int = 1, **fields: object) -> Propose:
    """A proposal for `LOG` that asks for everything from `start` on, unless `fields` say more."""
    values: dict[str, object] = {
        "request": number,
        "log": LOG,
        "start": start,
        "lower_info": start if fields.get("offset") is None else None,
        "min_bytes": 0,
        "max_bytes": U64_MAX,
        "starting_hash": None,
        "eagerness": Eagerness.ALL,
        **fields,
    }
    if values.get("end") is not None:
        values.setdefault("upper_info", values["end"])
    if values["starting_hash"] is None:
        lower_info = values["lower_info"]
        target = start if lower_info is None else lipmaa(max(int(str(lower_info)), 1))
        if lower_info is None or target > 0:
            values["starting_hash"] = REFERENCE.get(target, REFERENCE[1]).hash
    return Propose(**cast("dict[str, Any]", values))


def entry_packets(held: dict[int, Held], seqs: Iterable[int], first: int | None = None) -> bytes:
    """Metadata and payload of entries; `first` is the one whose backlink was not transmitted."""
    return b"".join(
        metadata_packet(held, seq, seq == first) + payload_packet(held, seq) for seq in seqs
    )


def metadata_packet(held: dict[int, Held], seq: int, is_first: bool = False) -> bytes:
    with_backlink = is_first and has_distinct_lipmaalink(seq)
    return encode_metadata_packet(held[seq].encoded, 0, seq, with_backlink)


def payload_packet(held: dict[int, Held], seq: int) -> bytes:
    payload = held[seq].payload or b""
    return encode_payload_header(len(payload)) + payload


def cancel(number: int, reason: CancelReason = CancelReason.YOU_CANCELLED) -> Cancel:
    return Cancel(number, reason)


SWITCH = encode_switch

"""Logs that the script authors: as many as there are cases, each of them nobody else's."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from nacl.signing import SigningKey

from tests.peer.rig import Author, Held
from wire import (
    U64_MAX,
    Eagerness,
    LogKey,
    Propose,
    encode_metadata_packet,
    encode_payload_header,
    has_distinct_lipmaalink,
    lipmaa,
    sign_entry,
    yamf_hash,
)

SHARED_COUNT = 40
"""Entries of the log that the endpoint under test holds from the start."""


def small(seq: int) -> bytes:
    """The payload of an entry, unless a case wants another one."""
    return b"p%d" % seq


class History:
    """One log: its entries, and what is said and sent about it."""

    def __init__(
        self,
        author: Author,
        log_id: int,
        payload: Callable[[int], bytes] = small,
        *,
        end: int | None = None,
    ) -> None:
        self.author = author
        self.log = LogKey(author.id, log_id)
        self.held: dict[int, Held] = {}
        self._payload = payload
        self._end = end

    def upto(self, count: int) -> dict[int, Held]:
        """The entries 1 to `count`."""
        while len(self.held) < count:
            seq = len(self.held) + 1
            number, held = self.author.entry(
                self.held, self.log.log_id, self._payload(seq), is_end=seq == self._end
            )
            self.held[number] = held
        return {seq: self.held[seq] for seq in range(1, count + 1)}

    def entry(self, seq: int) -> Held:
        return self.upto(seq)[seq] if seq not in self.held else self.held[seq]

    def hash(self, seq: int) -> bytes:
        return self.entry(seq).hash

    def payload(self, seq: int) -> bytes:
        return self.entry(seq).payload or b""

    # Packets

    def metadata(self, seq: int, *, first: bool = False) -> bytes:
        """A metadata packet; `first`: the backlink's target was not transmitted."""
        with_backlink = first and has_distinct_lipmaalink(seq)
        return encode_metadata_packet(self.entry(seq).encoded, self.log.log_id, seq, with_backlink)

    def solid(self, seq: int) -> bytes:
        """The whole payload as one packet 8."""
        payload = self.payload(seq)
        return encode_payload_header(len(payload)) + payload

    def entries(self, seqs: Iterable[int], *, first: int | None = None) -> bytes:
        """Metadata and payload of entries; `first` is the one whose backlink is carried."""
        return b"".join(self.metadata(seq, first=seq == first) + self.solid(seq) for seq in seqs)

    def bad_signature(self, seq: int) -> bytes:
        packet = self.metadata(seq)
        return packet[:-1] + bytes((packet[-1] ^ 1,))

    # Proposals

    def propose(self, number: int, start: int = 1, **fields: object) -> Propose:
        """Asks for everything from `start` on, unless `fields` say more.

        The expected starting hash is the right one unless it is among the fields.
        """
        values: dict[str, object] = {
            "request": number,
            "log": self.log,
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
            lower_info = cast("int | None", values["lower_info"])
            target = start if lower_info is None else lipmaa(max(lower_info, 1))
            if lower_info is None or target > 0:
                known = target <= 4 * SHARED_COUNT
                values["starting_hash"] = self.hash(target if known else 1)
        return Propose(**cast("dict[str, Any]", values))


class Huge(History):
    """A log whose entry 1 claims a payload that no endpoint takes in; it is signed as it should."""

    def entry(self, seq: int) -> Held:
        encoded = sign_entry(
            self.author.key,
            log_id=self.log.log_id,
            seq=seq,
            is_end=False,
            lipmaalink=None,
            backlink=None,
            payload_bytes=U64_MAX,
            payload_hash=yamf_hash(b""),
        )
        return Held(encoded, yamf_hash(encoded), None)


class Library:
    """Makes histories by one author, and one by an author whom nobody follows."""

    def __init__(self, seed: bytes = b"c" * 32, *, first_log_id: int = 0) -> None:
        self.author = Author(SigningKey(seed))
        self.endpoint = Author(SigningKey(bytes(byte ^ 0xAA for byte in seed)))
        """Whose own logs are the endpoint's, where it is given a key (`Need.OWN`)."""
        self.stranger = Author(SigningKey(bytes(byte ^ 0x55 for byte in seed)))
        self.shared = History(self.author, first_log_id)
        self._next = first_log_id

    def fresh_own(self) -> History:
        """A log that the endpoint is to author (`Link.author`)."""
        self._next += 1
        return History(self.endpoint, self._next)

    def huge(self, history: History) -> History:
        """An entry 1 of the same log that claims 2^64 - 1 bytes of payload."""
        return Huge(history.author, history.log.log_id)

    def fresh(
        self,
        payload: Callable[[int], bytes] = small,
        *,
        unwanted: bool = False,
        end: int | None = None,
    ) -> History:
        """A log that nobody has heard of; `end`: its last entry."""
        self._next += 1
        author = self.stranger if unwanted else self.author
        return History(author, self._next, payload, end=end)

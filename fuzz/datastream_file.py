"""A stream file of any bytes is walked to its end or refused by name, and nothing else happens."""

import tempfile
from contextlib import suppress
from pathlib import Path

from fuzz.harness import main
from gateways.datastream import FileRefused
from gateways.datastream.codec import HEAD_BYTES, Entry, Header, encode_entry, encode_header
from gateways.datastream.files import MAGIC, walk_file

OPERATION = b"".join(encode_entry(Entry(number, 1, b"x" * number)) for number in range(4))


def stream_file(header: Header) -> bytes:
    """What the header page begins with, without its zeros, and the entries."""
    return MAGIC + encode_header(header) + OPERATION


CORPUS = [
    stream_file(Header(1, 137, 1, 4096 + len(OPERATION), 4)),
    stream_file(Header(1, 137, 1, 4096, 0)),
]
_PATH = Path(tempfile.mkdtemp()) / "s.bin"


def check(data: bytes) -> None:
    """The invariant, for any bytes: the header page is filled up with zeros."""
    head = len(MAGIC) + 38
    _PATH.write_bytes(data[:head].ljust(4096, b"\0") + data[head:])
    with _PATH.open("rb") as file, suppress(FileRefused):
        total, found = walk_file(_PATH, file)
        entries = list(found)
        assert len(entries) == total
        assert sum(map(len, entries)) <= len(data)
        assert all(len(each) >= HEAD_BYTES for each in entries)


if __name__ == "__main__":
    main(check, CORPUS)

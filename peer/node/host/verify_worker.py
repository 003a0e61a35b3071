"""The program of a verification process: entries in on stdin, verdicts out on stdout.

It is run by path, as a program of its own, so it loads `wire` and nothing else of ours: no Trio, no
store. It ends when stdin ends, and so whenever its parent does, however that died.

    out, once:      length (u32) | text: empty if the signature library is the right one
    in, each batch: bytes that follow (u32) | entries, each: length (u16) | encoding
    out:            one byte for each entry, 01 if its signature is valid, else 00

Numbers are big-endian. Batches are answered in the order in which they came.
"""

import os
import sys

from wire import SignatureLibraryError, signature_is_valid, signature_self_test

READ_BYTES = 1 << 16


def read_exactly(fd: int, count: int) -> bytes:
    """The next `count` bytes; EOFError if the other side ended before."""
    parts: list[bytes] = []
    while count:
        part = os.read(fd, min(count, READ_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """Writes all of `data`, however little the pipe takes at a time."""
    while data:
        data = data[os.write(fd, data) :]


def verdicts(batch: bytes) -> bytes:
    """One byte for each entry of the batch."""
    result = bytearray()
    offset = 0
    while offset < len(batch):
        start = offset + 2
        offset = start + int.from_bytes(batch[offset:start], "big")
        result.append(signature_is_valid(batch[start:offset]))
    return bytes(result)


def main(stdin: int = 0, stdout: int = 1) -> int:
    """Serves until stdin ends; the exit status is 1 if the signature library is the wrong one."""
    try:
        signature_self_test()
    except SignatureLibraryError as error:
        text = str(error).encode()
        write_all(stdout, len(text).to_bytes(4, "big") + text)
        return 1
    try:
        write_all(stdout, bytes(4))
        while True:
            length = int.from_bytes(read_exactly(stdin, 4), "big")
            write_all(stdout, verdicts(read_exactly(stdin, length)))
    except (EOFError, BrokenPipeError):
        return 0


if __name__ == "__main__":
    sys.exit(main())

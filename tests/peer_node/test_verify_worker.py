"""The verification process's program: what it reads and writes, run in this process over pipes."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from nacl.signing import SigningKey

from peer.node.host import verify_worker
from peer.node.host.worker_process import frame
from wire import SignatureLibraryError, sign_entry, yamf_hash

KEY = SigningKey(bytes(32))


def encoded_entry(log_id: int) -> bytes:
    return sign_entry(
        KEY,
        log_id=log_id,
        seq=1,
        is_end=False,
        lipmaalink=None,
        backlink=None,
        payload_bytes=0,
        payload_hash=yamf_hash(b""),
    )


def spoiled(encoded: bytes) -> bytes:
    return encoded[:-1] + bytes([encoded[-1] ^ 1])


@dataclass
class Program:
    """The program in a thread, and the other ends of its pipes."""

    stdin: int
    stdout: int
    thread: threading.Thread
    status: list[int]


@pytest.fixture
def program() -> Iterator[Program]:
    child_in, stdin = os.pipe()
    stdout, child_out = os.pipe()
    status: list[int] = []

    def run() -> None:
        status.append(verify_worker.main(child_in, child_out))
        os.close(child_out)

    thread = threading.Thread(target=run)
    thread.start()
    running = Program(stdin, stdout, thread, status)
    yield running
    if not status:
        os.close(stdin)
    thread.join()
    os.close(child_in)
    os.close(stdout)


def test_it_says_that_its_library_is_right_and_judges_each_entry_in_order(program: Program) -> None:
    assert verify_worker.read_exactly(program.stdout, 4) == bytes(4)
    good = encoded_entry(1)
    os.write(program.stdin, frame([good, spoiled(good), encoded_entry(2)]) + frame([good]))
    assert verify_worker.read_exactly(program.stdout, 4) == b"\x01\x00\x01\x01"


def test_a_batch_may_come_byte_by_byte(program: Program) -> None:
    verify_worker.read_exactly(program.stdout, 4)
    for byte in frame([encoded_entry(1)]):
        os.write(program.stdin, bytes([byte]))
    assert verify_worker.read_exactly(program.stdout, 1) == b"\x01"


def test_it_ends_with_status_0_when_its_input_ends(program: Program) -> None:
    verify_worker.read_exactly(program.stdout, 4)
    os.close(program.stdin)
    program.thread.join()
    assert program.status == [0]


def test_a_wrong_signature_library_is_reported_and_nothing_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise SignatureLibraryError("wrong rule")

    monkeypatch.setattr(verify_worker, "signature_self_test", fail)
    reading, writing = os.pipe()
    assert verify_worker.main(reading, writing) == 1
    assert verify_worker.read_exactly(reading, 4 + 10) == b"\x00\x00\x00\x0awrong rule"
    os.close(reading)
    os.close(writing)


def test_verdicts_of_an_empty_batch_are_empty() -> None:
    assert verify_worker.verdicts(b"") == b""

"""A request for metrics, taken apart piece by piece, and what is answered."""

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.node.status.pages import REQUEST_BYTES_MAX, Page, Request, encoded


def asked(data: bytes) -> Request:
    request = Request()
    assert request.take(data)
    return request


@given(st.lists(st.integers(0, 60), max_size=5))
def test_a_request_may_come_in_pieces(cuts: list[int]) -> None:
    data = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nX: \r\r\n\r\n"
    request, at = Request(), 0
    for cut in sorted({each for each in cuts if 0 < each < len(data)}):
        assert not request.take(data[at:cut])
        at = cut
    assert request.take(data[at:])
    assert request.path() == "/metrics"
    assert request.wants_body


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET /metrics\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics HTTP/2\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"x" * (REQUEST_BYTES_MAX + 1), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    ],
)
def test_what_is_no_request_is_answered_all_the_same(data: bytes, status: HTTPStatus) -> None:
    page = asked(data).path()
    assert isinstance(page, Page)
    assert page.status is status
    assert (b"Allow: GET, HEAD" in encoded(page, with_body=True)) == (status.value == 405)


def test_too_many_headers_are_too_long_wherever_they_end() -> None:
    request = Request()
    assert not request.take(b"GET / HTTP/1.1\r\n")
    assert request.take(b"X: y\r\n" * REQUEST_BYTES_MAX + b"\r\n")
    assert isinstance(request.path(), Page)


def test_an_answer_says_how_long_it_is_and_that_it_is_the_last() -> None:
    page = Page(HTTPStatus.OK, b"body\n")
    whole = encoded(page, with_body=True)
    head, _, body = whole.partition(b"\r\n\r\n")
    assert body == b"body\n"
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 5" in head.split(b"\r\n")
    assert b"Connection: close" in head.split(b"\r\n")
    assert encoded(page, with_body=False) == head + b"\r\n\r\n"
    assert not asked(b"HEAD / HTTP/1.1\r\n\r\n").wants_body

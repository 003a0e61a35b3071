"""Ed25519's group in plain integers, and signatures crafted where libraries disagree.

Slow, for tests: what is made of it is chosen by an attacker, who has all the time there is.
"""

import random
from collections.abc import Iterator
from hashlib import sha512
from typing import NamedTuple

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)


class Point(NamedTuple):
    """Affine, reduced."""

    x: int
    y: int

    def __add__(self, other: object) -> "Point":
        assert isinstance(other, Point)
        product = D * self.x * other.x * self.y * other.y
        x = (self.x * other.y + self.y * other.x) * pow(1 + product, -1, P)
        y = (self.y * other.y + self.x * other.x) * pow(1 - product, -1, P)
        return Point(x % P, y % P)

    def times(self, n: int) -> "Point":
        result, power = ZERO, self
        while n:
            if n & 1:
                result += power
            power += power
            n >>= 1
        return result

    def encoded(self) -> bytes:
        return (self.y | (self.x & 1) << 255).to_bytes(32, "little")


ZERO = Point(0, 1)


def with_y(y: int, sign: int) -> Point | None:
    """The point with this y, if there is one."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT_OF_MINUS_1 % P
    if x * x % P != square:
        return None
    return Point(x if x & 1 == sign else -x % P, y)


def _base() -> Point:
    found = with_y(4 * pow(5, -1, P) % P, 0)
    assert found is not None
    return found


BASE = _base()


def _torsion() -> list[Point]:
    y = 2
    while True:
        point = with_y(y, 0)
        if point is not None:
            generator = point.times(L)
            if generator.times(4) != ZERO:
                return [generator.times(n) for n in range(8)]
        y += 1


TORSION = _torsion()
"""The eight points of small order."""

STRANGE = [
    *dict.fromkeys(point.encoded() for point in TORSION),
    # The same with the other sign of x, though x is 0; and with y above the prime.
    *((y | sign << 255).to_bytes(32, "little") for y in (1, P - 1, P, P + 1) for sign in (0, 1)),
    *((P + y | sign << 255).to_bytes(32, "little") for y in range(2, 19) for sign in (0, 1)),
    # On no curve, or nearly all bits.
    (2).to_bytes(32, "little"),
    b"\xff" * 32,
    bytes(32),
]
"""Encodings of points of small order, such as are not canonical, and such as are of no point."""


class _Scaled(NamedTuple):
    """A multiple of the base point, with a point of small order on top."""

    scalar: int
    torsion: int
    encoded: bytes


def _scaled(rng: random.Random, count: int) -> list[_Scaled]:
    made = []
    for _ in range(count):
        scalar = rng.randrange(1, L)
        point = BASE.times(scalar)
        made += [_Scaled(scalar, n, (point + TORSION[n]).encoded()) for n in range(8)]
    return made


def crafted(count: int, seed: int) -> Iterator[tuple[bytes, int]]:
    """Signed bytes as entries have them (tag, author, some more, R, S) and which craft was used.

    Each is right but for its craft: its equation holds with the cofactor at least, as far as one
    can say so of points that are none.
    """
    rng = random.Random(seed)
    keys, commitments = _scaled(rng, 5), _scaled(rng, 12)
    for _ in range(count):
        craft = rng.randrange(10)
        key, r = rng.choice(keys), rng.choice(commitments)
        if craft < 4:
            # Points of large order and no torsion; below only S is changed.
            key, r = (keys[8 * rng.randrange(5)], commitments[8 * rng.randrange(12)])
        author, r_bytes = key.encoded, r.encoded
        if craft == 4:
            author = rng.choice(STRANGE)
        elif craft == 5:
            r_bytes = rng.choice(STRANGE)
        elif craft == 6:
            author = r_bytes = rng.choice(STRANGE)
        message = bytes((rng.randrange(2),)) + author + rng.randbytes(rng.randrange(40))
        digest = sha512(r_bytes + author + message).digest()
        k = int.from_bytes(digest, "little") % L
        s = (r.scalar + k * key.scalar) % L
        if craft in {4, 6}:
            # As if the key were of small order: then R alone decides, or nothing does.
            s = r.scalar if craft == 4 else rng.choice((0, s))
        elif craft == 5:
            s = rng.choice((s, k * key.scalar % L))
        elif craft == 1:
            s += L * rng.randrange(1, (2**256 - s) // L)
        elif craft == 2:
            s = rng.choice((L - 1, L, L + 1, 2**252, 2**253 - 1, 2**255, 2**256 - 1, 0))
        elif craft == 3:
            s ^= 1 << rng.randrange(256)
        yield message + r_bytes + s.to_bytes(32, "little"), craft

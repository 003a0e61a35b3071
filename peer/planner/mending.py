"""Payloads that are missing although their entries are held: each is asked for once at a time.

An earlier source may have skipped them, a disk failed, they came as part of a pool, or somebody
fetches what he had dropped. The open request of a log begins behind them, so they get requests of
their own: neighbours one for payloads only; one that is held in part a request that begins there.
When to try again what did not come is told from outside (lacking.py).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peer.data.pinning import doubted, is_counted
from peer.protocol.commands import LookUp
from peer.protocol.events import LogView
from peer.protocol.request import Request
from wire import U64_MAX, CancelReason, Eagerness, LogKey, Propose, lipmaa

from .coverage import bodies, carried
from .log_state import RANGES_MAX
from .planning import Wants, mended
from .ranges import Range, Ranges, meet, minus, range_with, union
from .settling import Settling

if TYPE_CHECKING:
    from .policy import Actions

_CREDIT_LEFT_MIN = 8
"""Request credit that mending leaves for logs that have no request yet."""

_NAMED_MAX = 512
"""So many missing payloads are looked up at once: neighbours are asked for together."""

_Key = tuple[LogKey, bool]
"""A log, and whether somebody fetches its payloads (else the subscription names them)."""

Limits = tuple[int, int]
"""Sizes of payloads, in bytes; a largest size of -1: none."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Payloads to ask for in one request: neighbours, or one of which `held` bytes are here."""

    first: int
    last: int
    held: int
    hash: bytes | None
    """The starting hash that the proposal needs."""


@dataclass(slots=True)
class _Mend:
    ranges: Ranges
    """The entries whose payloads are wanted."""
    limits: Limits
    tail: bool
    """Whether the last entry of the first run counts too."""
    asked_up_to: int = 0
    wanted: deque[_Piece] = field(default_factory=deque)
    open: int = 0
    looking: int = 0
    """How many look-ups are under way."""
    releases: int = 0
    """How many requests of the log have ended since this began."""

    @property
    def over(self) -> bool:
        return not (self.wanted or self.open or self.looking)


class Mender:
    """Asks for missing payloads of logs of which the other side has something."""

    def __init__(
        self,
        actions: "Actions",
        settling: Settling,
        *,
        leave_arriving: bool = False,
    ) -> None:
        """`leave_arriving`: what some session is receiving is left to it."""
        self._leave_arriving = leave_arriving
        self._awaits: set[LogKey] = set()
        self._actions = actions
        self._settling = settling
        self._mends: dict[_Key, _Mend] = {}
        self._begun: dict[_Key, Ranges] = {}
        self._next: dict[_Key, tuple[Ranges, Limits]] = {}
        self._asked: dict[Request, tuple[_Key, _Piece]] = {}
        self._refused: dict[LogKey, tuple[Range, ...]] = {}
        """Ranges in the order in which they were refused."""

    def mend(self, view: LogView, wants: Wants, newest: int, *, alone: bool, tail: bool) -> None:
        """Ask for payloads that are missing of what is wanted, and that nothing brings.

        Another session that fetches the log has its time to bring them, but does not if `alone`.
        """
        ranges, limits = mended(wants, max(view.newest, newest)), wants.payload_limits
        if self._left(view, ranges, limits, tail=tail) and (alone or self._actions.claim(view.log)):
            self.begin(view, ranges, limits, tail=tail)

    def begin(self, view: LogView, ranges: Ranges, limits: Limits, *, tail: bool = False) -> None:
        """Ask for missing payloads of these entries, if there are any."""
        left = self._left(view, ranges, limits, tail=tail)
        if left:
            # This view may be older than what came last.
            self._look((view.log, False), left, limits, tail=tail)

    def _left(self, view: LogView, ranges: Ranges, limits: Limits, *, tail: bool = False) -> Ranges:
        """The entries among which payloads are missing that were not asked for, none: empty.

        `tail`: no request begins inside the payload of the newest entry, so that one counts too.
        """
        key = (view.log, False)
        begun = self._begun.get(key, ())
        if not (tail and not view.tail_arriving) and view.tail_partial_bytes is not None:
            begun = union(begun, ((view.height, view.height),))
        taken = union(begun, self._brought(view.log))
        mend = _Mend(minus(meet(ranges, ((1, view.newest),)), taken), limits, tail)
        if key in self._mends or not mend.ranges:
            return ()
        named = view.missing_payloads
        if not _missing(view, mend) and not (named and named[-1][0] < mend.ranges[-1][1]):
            return ()
        return mend.ranges

    def note_release(self, log: LogKey) -> None:
        """A request is over: look-ups that are under way may not know what it brought."""
        for key in ((log, False), (log, True)):
            if key in self._mends:
                self._mends[key].releases += 1

    def _brought(self, log: LogKey) -> Ranges:
        """The entries whose payloads come anyway."""
        over = (carried(request) for request in self._settling.of(log))
        return union(bodies(self._actions.requests_of(log)), *over)

    def has_begun(self, log: LogKey, seq: int) -> bool:
        """Whether the payload of an entry was asked for if it was missing."""
        return any(range_with(self._begun.get((log, each), ()), seq) for each in (False, True))

    def fetch(self, log: LogKey, ranges: Ranges) -> None:
        """Ask for payloads of any size, which somebody wants once."""
        self._look((log, True), ranges, (0, U64_MAX))

    def has_fetched(self, log: LogKey, ranges: Ranges) -> bool:
        """Whether all of that was asked for, or is to be."""
        return not minus(ranges, self._begun.get((log, True), ()))

    def wants_changed(self, log: LogKey, ranges: Ranges, limits: Limits) -> None:
        """The subscription is another one: what was too large before may be missing now.

        If another session fetches the log, that one asks for it.
        """
        key = (log, False)
        self._begun.pop(key, None)
        mend = self._mends.get(key)
        if mend is not None:
            mend.wanted.clear()
            mend.ranges = ()
        if self._actions.claim(log):
            self._look(key, ranges, limits)

    def ask_again(self, log: LogKey) -> None:
        """The other side may hold more than it did: perhaps also what it had to skip."""
        for key in ((log, False), (log, True)):
            if key in self._begun:
                refused = union(self._refused.get(log, ()))
                self._begun[key] = _bounded(meet(self._begun[key], refused))

    def arrived(self, log: LogKey) -> bool:
        """Whether what was left to other sessions is to be looked at again."""
        if log not in self._awaits:
            return False
        self._awaits.discard(log)
        self.ask_again(log)
        return True

    def heard(self, log: LogKey) -> None:
        """The other side proposed something of a log: it may want now what it refused."""
        self._refused.pop(log, None)

    def keep_fetching(self, log: LogKey, ranges: Ranges) -> None:
        """Only this is still to be fetched; what is not may be wanted anew one day."""
        key = (log, True)
        if key in self._begun:
            self._begun[key] = _bounded(meet(self._begun[key], ranges))

    def _look(self, key: _Key, ranges: Ranges, limits: Limits, *, tail: bool = True) -> None:
        if key in self._mends:
            self._next[key] = (ranges, limits)
            return
        left = minus(ranges, self._begun.get(key, ()))
        if left:
            if key[1]:
                self._begun[key] = _bounded(union(self._begun.get(key, ()), left))
            mend = _Mend(left, limits, tail=tail, asked_up_to=left[0][0] - 1)
            self._mends[key] = mend
            self._look_further(key, mend)

    def _over(self, key: _Key) -> None:
        del self._mends[key]
        follows = self._next.pop(key, None)
        if follows is not None:
            self._look(key, *follows)

    def is_mending(self, log: LogKey) -> bool:
        return (log, False) in self._mends or (log, True) in self._mends

    def owns(self, request: Request) -> bool:
        return request in self._asked

    def _take(self, key: _Key, mend: _Mend, view: LogView, came: Ranges) -> None:
        """The next payloads of a log; the hashes of their entries have to be looked up.

        `came`: those that came anyway, and the view may not know it.
        """
        seen = meet(mend.ranges, ((1, view.newest),)) if view.newest else ()
        if view.tail_partial_bytes is not None and not _takes_tail(view, mend):
            # What was to bring it may not: once the log has grown, it is one among the others.
            seen = minus(seen, ((view.height, view.height),))
        self._begun[key] = _bounded(union(self._begun.get(key, ()), seen))
        brought = union(came, self._brought(key[0]))
        missing = [each for each in _missing(view, mend) if range_with(brought, each[0]) is None]
        named = view.missing_payloads
        mend.asked_up_to = max([mend.asked_up_to, *(seq for seq, _ in named)])
        mend.tail = mend.tail and view.height not in dict(missing)
        if not missing:
            if named and mend.ranges:
                self._look_further(key, mend)
            elif mend.over:
                # A payload may have been given up, and asked for again, during the look-up.
                self._over(key)
            return
        mend.looking += 1
        hashes_of = {n for seq in _firsts(missing) for n in (seq, lipmaa(seq)) if n > 0}

        def take(found: LogView) -> None:
            mend.looking -= 1
            if mend.ranges:
                mend.wanted.extend(_pieces(missing, found))

        self._actions.look_up(LookUp(0, key[0], tuple(sorted(hashes_of))), take)

    @property
    def waiting(self) -> int:
        """How many pieces have no request yet."""
        return sum(len(mend.wanted) for mend in self._mends.values())

    def advance(self, *, others_wait: bool) -> bool:
        """Propose as far as the credit goes; True if some log has just been mended.

        `others_wait`: there are logs that have no request yet.
        """
        before = len(self._mends)
        credit_left_min = _CREDIT_LEFT_MIN if others_wait else 0
        for key, mend in list(self._mends.items()):
            while mend.wanted and self._actions.request_credit > credit_left_min:
                piece = mend.wanted[0]
                if self._is_asked_for(key[0], piece):
                    mend.wanted.popleft()
                    continue
                if not self._actions.may_propose(key[0], piece.first, piece.last):
                    break
                mend.wanted.popleft()
                self._ask(key, piece)
            if mend.over and key[0] not in self._settling:
                self._look_further(key, mend)
        return len(self._mends) < before

    def _is_asked_for(self, log: LogKey, piece: _Piece) -> bool:
        """Whether something else that was proposed while it waited for its turn brings it.

        Not an open request: this may be what that one did not bring.
        """
        requests = self._actions.requests_of(log)
        asked = bodies(each for each in requests if each.ours and each.proposal.end is not None)
        return not minus(((piece.first, piece.last),), asked)

    def _ask(self, key: _Key, piece: _Piece) -> None:
        inside = piece.held > 0 or piece.first == piece.last
        proposal = Propose(
            request=self._actions.next_number(),
            log=key[0],
            start=piece.first,
            lower_info=None if inside else piece.first,
            min_bytes=0,
            max_bytes=U64_MAX,
            starting_hash=piece.hash,
            eagerness=Eagerness.ALL,
            end=piece.last,
            upper_info=piece.last,
            offset=piece.held if inside else None,
            payloads_only=not inside,
        )
        self._mends[key].open += 1
        request = self._actions.propose(proposal, LogView(key[0], newest=piece.last))
        self._asked[request] = (key, piece)

    def _look_further(self, key: _Key, mend: _Mend) -> None:
        mend.looking += 1
        releases, came = mend.releases, self._brought(key[0])

        def take(view: LogView) -> None:
            mend.looking -= 1
            if view.some_arriving:
                self._awaits.add(key[0])
            if self._mends.get(key) is not mend:
                return
            # Else the view may lack what has come since: `advance` looks again.
            if releases == mend.releases and key[0] not in self._settling:
                self._take(key, mend, view, came)

        smallest, largest = mend.limits
        wanted = LookUp(
            0,
            key[0],
            missing_above=mend.asked_up_to,
            missing_max=_NAMED_MAX,
            min_bytes=smallest,
            max_bytes=largest,
            leave_arriving=self._leave_arriving,
        )
        self._actions.look_up(wanted, take)

    def given_up(self, request: Request) -> bool:
        """A payload that was joined from several sources is wrong: ask once more, from 0.

        Or payloads that may belong to other entries: ask for each. The request may be over by then.
        False if it is none of these, or if the request was for more than these payloads.
        """
        proposal, last = request.proposal, request.proposal.end
        unfit = doubted(request)
        if unfit is not None:
            self._ask_anew(request.log, unfit)
            return False
        if not request.ours or last is None:
            return False
        key, seq = (request.log, False), proposal.start
        if proposal.offset and last == seq:
            piece = _Piece(seq, seq, 0, proposal.starting_hash)
            self._mend_of(key, seq, seq).wanted.append(piece)
            return True
        if not _is_unsure(request):
            return False
        if request not in self._asked:
            first = _first_unproved(request)
            self._one_by_one(key, self._mend_of(key, first, last), first, last)
        return True

    def _ask_anew(self, log: LogKey, seq: int) -> None:
        """Ask for a payload by the hash of its entry, unless that is being done."""
        key = (log, False)
        mend = self._mend_of(key, seq, seq)
        pieces = [*mend.wanted, *(piece for of, piece in self._asked.values() if of == key)]
        if not any(piece.first == piece.last == seq for piece in pieces):
            self._one_by_one(key, mend, seq, seq)

    def _mend_of(self, key: _Key, first: int, last: int) -> _Mend:
        """What is mended of a log, to ask for more; if nothing is, then only these entries."""
        mend = self._mends.get(key)
        if mend is None:
            ranges, limits = ((first, last),), (0, U64_MAX)
            mend = self._mends[key] = _Mend(ranges, limits, tail=False, asked_up_to=last)
        return mend

    def forget(self, request: Request, *, lost: bool = False) -> None:
        """A request of ours is over, or never existed (`lost`: then it is made again)."""
        asked = self._asked.pop(request, None)
        if asked is None:
            return
        key, piece = asked
        mend = self._mends[key]
        mend.open -= 1
        if lost:
            mend.wanted.append(piece)
            return
        if request.cancel_received is CancelReason.NOT_WANTED:
            self._note_refused(key[0], piece)
        served = piece.last if request.base is None else request.base.end or piece.last
        if request.cancel_received is CancelReason.NO_RESOURCES and request.base is None:
            served = piece.first - 1
        if _is_unsure(request):
            self._one_by_one(key, mend, _first_unproved(request), piece.last)
        elif piece.first < piece.last and served < piece.last:
            self._one_by_one(key, mend, served + 1, piece.last)

    def _note_refused(self, log: LogKey, piece: _Piece) -> None:
        """Do not ask for this again (section 6).

        Of too many the oldest is forgotten. Later proposals have been made for the log, so that it
        may be asked for again, with as much patience as what was skipped.
        """
        first, before = piece.first, self._refused.get(log, ())
        if before and before[-1][1] == first - 1:
            first, before = before[-1][0], before[:-1]
        self._refused[log] = (*before, (first, piece.last))[-RANGES_MAX:]

    def _one_by_one(self, key: _Key, mend: _Mend, first: int, last: int) -> None:
        """The other side does not hold all entries of a group as we do; perhaps it holds some."""
        mend.looking += 1
        seqs = tuple(range(first, last + 1))

        def take(found: LogView) -> None:
            mend.looking -= 1
            if mend.ranges:
                mend.wanted.extend(
                    _Piece(seq, seq, 0, found.hashes[seq])
                    for seq in seqs
                    if seq in found.hashes and not _is_whole(found, seq)
                )

        self._actions.look_up(LookUp(0, key[0], seqs, missing_above=first - 1), take)


def _bounded(ranges: Ranges) -> Ranges:
    """At most `RANGES_MAX` ranges: of more, the lowest are taken for one.

    So what lies between them is not asked for before everything is asked for again.
    """
    more = len(ranges) - RANGES_MAX
    return ranges if more <= 0 else ((ranges[0][0], ranges[more][1]), *ranges[more + 1 :])


def _is_unsure(request: Request) -> bool:
    """Whether what came may be payloads of other entries than we asked for (pinning.py)."""
    incoming = request.incoming
    wrong = incoming.adrift or incoming.invalid is not None
    ended = request.base is not None and request.cancel_received is CancelReason.COMPLETE
    # It has sent all that it has of the range, and that was less than there is to our entries.
    short = ended and incoming.position < (request.limit or 0)
    return (wrong or short) and not is_counted(request)


def _first_unproved(request: Request) -> int:
    """The first entry of a group whose payload neither came and verified nor was skipped."""
    base, verified = request.base, request.incoming.verified
    return request.proposal.start if base is None else base.start + verified


def _is_whole(view: LogView, seq: int) -> bool:
    """Whether the payload of an entry is not among the missing ones, as far as a view tells."""
    if seq == view.height:
        return view.tail_partial_bytes is None
    named = [each for each, _ in view.missing_payloads]
    return seq not in named and (view.missing_complete or seq < max(named, default=0))


def _takes_tail(view: LogView, mend: _Mend) -> bool:
    """Whether the payload of the last entry of the first run is mended too, if it is missing."""
    return mend.tail and not view.tail_arriving


def _missing(view: LogView, mend: _Mend) -> list[tuple[int, int]]:
    """(seqnum, bytes held) of the payloads that a view names and that are wanted."""
    missing = [*view.missing_payloads]
    named = [seq for seq, _ in missing if seq > mend.asked_up_to]
    # The view names the first few only: between the last of them and the tail there may be more.
    reached = not named or named[-1] > view.height
    if _takes_tail(view, mend) and view.tail_partial_bytes is not None and reached:
        missing.append((view.height, view.tail_partial_bytes))
    return sorted(
        (seq, held)
        for seq, held in missing
        if seq > mend.asked_up_to and range_with(mend.ranges, seq) is not None
    )


def _firsts(missing: list[tuple[int, int]]) -> list[int]:
    """With which of them a request may begin: of neighbours the first."""
    joined = zip([(-1, 0), *missing], missing, strict=False)
    return [
        seq
        for (before, held_before), (seq, held) in joined
        if held or held_before or before != seq - 1
    ]


def _pieces(missing: list[tuple[int, int]], view: LogView) -> list[_Piece]:
    pieces: list[_Piece] = []
    for seq, held in missing:
        last = pieces[-1] if pieces else None
        if last is not None and not held and not last.held and last.last == seq - 1:
            target = lipmaa(last.first)
            if target == 0 or target in view.hashes:
                joined = view.hashes[target] if target else None
                pieces[-1] = _Piece(last.first, seq, 0, joined)
                continue
        if seq in view.hashes:
            pieces.append(_Piece(seq, seq, held, view.hashes[seq]))
    return pieces

"""Own entries that nobody else has yet leave only once the other side has said what it holds.

A key that two machines sign with makes two entries of one number, and as soon as both have spread
the log is forked for everybody. So a session sends of an own log only what others have already
(`Interests.shared`), until the contact has *shown* that the rest contradicts nothing there:

- the other side asks for all that follows an entry which others have: it holds no more than that;
- it has confirmed our own request for what follows such an entry, and brings what it has;
- or it is asked: for its newest entry, and then for its version of the newest that both hold.
  An entry names all before it by its links, so one that is the same says so of all;
- or it is no second machine at all. Such a machine wants its own log, and answers what it is asked
  of it: who refuses a question, or says nothing to it, only wants to read.

The first two count when the question comes up (`_ask`); once it is asked, the answer does.

It comes up when something is about to leave, when the other side is in step with what nobody is
known to have (`active`), and where the node wants to know (`Interests.asked`). In a session in
which none of that is so nothing is asked. Hashes and numbers may leave, entries and payloads may
not. Where it turns out that the other side's entry is another one, it is given only what others
have, and the store contests the log (logstore.sharing). Two machines with one key that meet each
other first, and hold each an entry that nobody else has, would wait for each other: there the
reactive side answers first.

Where a log stands, from when something of it is held back:

    TO_ASK ──► LOOKING ──► ASKED ──── 3 s of silence ────► SILENT: all may leave
       ▲                     │                               │
       │                     └──────── an answer ────────────┘
       │                                   │
       ├── it names the newest there,      │
       │   or gave way to theirs (7)       ├── refused, or nothing to contradict: SHOWN
       └───────────────────────────────────┤
                                           ├── another entry: CONTRADICTS, no more may leave
                                           └── confirmed: COMING ──► STORING ──► SHOWN

Silence counts from when the question is known to be there (silence.py): a slow link shows nothing.
It is a guess, so that an answer that comes after all is heard. Who gives no credit to ask with is
silent too: a node gives it back within moments, however busy it is. A refused offer of ours shows
nothing either: a second machine that lacks what comes before it refuses it, to ask for all
that it needs itself (section 6, 128).
"""

from collections.abc import Callable, Mapping
from enum import IntEnum, auto
from functools import partial

from msgspec import Struct

from peer.protocol.commands import LookUp
from peer.protocol.events import Interests, InterestsChanged, LogView
from peer.protocol.request import Request
from wire import U64_MAX, Cancel, CancelReason, Eagerness, LogKey, decode_entry

from .actions import Actions
from .answer import goes_on
from .asks import PROBE, Ask, comparison_of, lacking_hashes, named_for
from .coverage import is_stored
from .silence import Silences


class _Stage(IntEnum):
    TO_ASK = auto()
    """It is to be asked for its newest entry, or for its version of one that both hold."""
    LOOKING = auto()
    """What the question has to name is being looked up."""
    ASKED = auto()
    COMING = auto()
    """It has confirmed to send its version. That may queue behind other data for long."""
    STORING = auto()
    """That has come, and is being compared by the store."""
    SILENT = auto()
    """It did not answer in time, and is taken for somebody who only reads."""
    SHOWN = auto()
    """What is held there does not contradict what is held here."""
    CONTRADICTS = auto()
    """It does. Nothing that others have not seen leaves any more."""


_MAY_LEAVE = frozenset((_Stage.SILENT, _Stage.SHOWN))
_OPEN = frozenset(_Stage) - _MAY_LEAVE - {_Stage.CONTRADICTS}
_UNANSWERED = frozenset((_Stage.ASKED, _Stage.SILENT))
_CREDIT = None
"""What stands for credit to ask with among the questions without an answer."""


class _Contact(Struct):
    """How far the other side has shown what it holds of one log."""

    stage: _Stage
    request: Request | None = None
    """The question that is open."""
    compared: int | None = None
    """The entry that is asked about: both hold it, as far as is known. None: for the newest."""


class Withholding:
    """Says how much of a log may be sent in this session, and finds out whether all may."""

    def __init__(self, actions: Actions, *, proactive: bool, silence_s: float) -> None:
        """`silence_s`: how long a question that has arrived waits for its answer, in seconds."""
        self._actions = actions
        self._proactive = proactive
        self._shared: Mapping[LogKey, int] = {}
        self._contested: frozenset[LogKey] = frozenset()
        self._contacts: dict[LogKey, _Contact] = {}
        # A node asks of thousands of logs at once, and is called after whatever happens: so those
        # of which something can be done are found without looking at the others.
        self._in: dict[_Stage, dict[LogKey, _Contact]] = {stage: {} for stage in _OPEN}
        self._silences: Silences[LogKey | None] = Silences(silence_s)
        self._starves = False
        """Whether there is something to ask, and no credit for it."""
        self._unasked: dict[LogKey, _Contact] = {}
        """What is SILENT for want of credit."""
        self._may_ask: Callable[[LogKey], bool] = Interests().may_give
        self._newest: dict[LogKey, int] = {}
        """What the other side has said of own logs before anything of them was held back."""
        self._changed = False

    def interests_changed(self, event: InterestsChanged) -> None:
        """What others have of own logs, as the node knows it."""
        self._shared = event.interests.shared
        self._contested = event.interests.contested
        for log in event.interests.asked:
            self._ask(log)

    def ask_only(self, may_ask: Callable[[LogKey], bool]) -> None:
        """Ask nothing from now on of logs that the other side is to hear nothing of.

        What was asked of them is forgotten: our questions are ended, so that silence shows nothing.
        A contradiction stays.
        """
        self._may_ask = may_ask
        for log, contact in list(self._contacts.items()):
            if not may_ask(log) and contact.stage is not _Stage.CONTRADICTS:
                self._move(log, contact, _Stage.SILENT)
                del self._contacts[log]
                self._unasked.pop(log, None)

    # What may be sent

    def limit(self, log: LogKey) -> int:
        """Up to which entry a log may be sent in this session now."""
        shared = self._shared.get(log)
        if shared is None:
            return U64_MAX
        contact = self._contacts.get(log)
        may_leave = contact is not None and contact.stage in _MAY_LEAVE
        return U64_MAX if may_leave and log not in self._contested else shared

    def limit_of(self, request: Request) -> int:
        """The same for a request; whoever only listens is told all, as nothing leaves by that."""
        if not self._shared or request.their_interest.eagerness is Eagerness.NOTIFY:
            return U64_MAX
        # Two that are asked the same would wait for each other: here the reactive side answers.
        if not self._proactive and self._is_comparison(request):
            return U64_MAX if request.log not in self._contested else self.limit(request.log)
        return self.limit(request.log)

    def held_back(self, request: Request) -> None:
        """Something would be sent in this request if the other side had shown what it holds."""
        self._ask(request.log)

    def active(self, request: Request) -> None:
        """Either side has confirmed. Whoever is in step with what nobody has seen has seen it, or
        something else: that is asked although nothing is about to leave."""
        shared = self._shared.get(request.log)
        if shared is not None and goes_on(request.proposal) and not self._shows(request, shared):
            self._ask(request.log)

    def before_cancel(self, request: Request, cancel: Cancel) -> Cancel:
        """A cancel that shows what may not leave, without that."""
        if cancel.reason is not CancelReason.HASH_MISMATCH:
            return cancel
        limit = self.limit(request.log)
        if all(decode_entry(each).seq <= limit for each in cancel.entries):
            return cancel
        self._ask(request.log)
        return Cancel(request.number, CancelReason.NOT_WANTED)

    def _is_comparison(self, request: Request) -> bool:
        """Whether the other side asks for one entry without its payload, as we do here."""
        proposal, interest = request.proposal, request.their_interest
        one = proposal.start == proposal.end and not (proposal.sparse or proposal.payloads_only)
        return not request.ours and one and interest.data_up_to == 0

    # What the other side shows

    def _ask(self, log: LogKey) -> None:
        if not self._may_ask(log):
            # A request that a new scope has ended may be confirmed all the same, for instance.
            return
        if log not in self._contacts and log not in self._contested:
            self._contacts[log] = contact = _Contact(_Stage.TO_ASK)
            self._in[_Stage.TO_ASK][log] = contact
            self._changed = True
            shared, newest = self._shared.get(log, 0), self._newest.get(log)
            if any(self._shows(each, shared) for each in self._actions.requests_of(log)):
                self._shown(log, contact)
            elif newest is not None:
                self._learned(log, contact, newest)

    @staticmethod
    def _shows(request: Request, shared: int) -> bool:
        """Whether a request means that the other side holds nothing that others have not seen."""
        proposal = request.proposal
        if not goes_on(proposal) or (request.ours and not request.confirmed):
            return False
        holds = proposal.start if proposal.offset is not None else proposal.start - 1
        return holds <= shared

    @property
    def is_due(self) -> bool:
        """Whether `advance` has something to do."""
        return self._changed

    @property
    def is_asking(self) -> bool:
        """Whether the other side has still to show what it holds of some log."""
        return any(self._in.values())

    def advance(self) -> None:
        """Asks what can be asked now, and takes silence for an answer where it has lasted."""
        self._changed = False
        for log, contact in list(self._in[_Stage.STORING].items()):
            if contact.request is None or is_stored(contact.request):
                self._shown(log, contact)
        for key in self._silences.take_due(self._actions.now):
            self._end_silence(key)
        if self._actions.request_credit:
            self._ask_after_all()
            self._ask_waiting()
        # Else whoever gives no credit would keep everything from being sent, without saying a word.
        if self._in[_Stage.TO_ASK] and not (self._actions.request_credit or self._starves):
            self._starves = True
            self._silences.begin(_CREDIT)

    def _ask_waiting(self) -> None:
        """Only with credit: thousands may wait for it, and are not gone through in vain."""
        for log, contact in list(self._in[_Stage.TO_ASK].items()):
            if not self._actions.request_credit:
                break
            if contact.compared is None:
                self._propose(contact, PROBE, LogView(log))
            elif self._actions.may_propose(log, contact.compared, contact.compared):
                # Else each of their messages would have it looked up in vain, before they answer.
                self._compare(log, contact, contact.compared, ())

    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came, or None."""
        return self._silences.next_at()

    def _end_silence(self, key: LogKey | None) -> None:
        """What was asked has been there for long enough."""
        if key is not _CREDIT:
            contact = self._contacts[key]
            if contact.request is not None:
                self._actions.waive_answer(contact.request)
            self._let_go(key, contact)
            return
        self._starves = False
        for log, contact in list(self._in[_Stage.TO_ASK].items()):
            self._unasked[log] = contact
            self._let_go(log, contact)

    def _let_go(self, log: LogKey, contact: _Contact) -> None:
        self._move(log, contact, _Stage.SILENT)
        self._actions.send_again(log)

    def _ask_after_all(self) -> None:
        """There is credit: what was not asked was no silence of the other side."""
        self._starves = False
        self._silences.end(_CREDIT)
        unasked, self._unasked = self._unasked, {}
        for log, contact in unasked.items():
            if contact.stage is _Stage.SILENT:
                self._move(log, contact, _Stage.TO_ASK)

    def _move(self, log: LogKey, contact: _Contact, stage: _Stage) -> None:
        if contact.stage in _OPEN:
            del self._in[contact.stage][log]
        if contact.stage is _Stage.ASKED:
            self._silences.end(log)
        contact.stage = stage
        if stage in _OPEN:
            self._in[stage][log] = contact
        if stage is _Stage.ASKED:
            self._silences.begin(log)

    def _ask_next(self, log: LogKey, contact: _Contact) -> None:
        """There is something to ask, as soon as that may be."""
        contact.request = None
        self._move(log, contact, _Stage.TO_ASK)
        self._changed = True

    def _compare(
        self, log: LogKey, contact: _Contact, compared: int, named: tuple[int, ...]
    ) -> None:
        self._move(log, contact, _Stage.LOOKING)
        then = partial(self._looked, contact, compared, named)
        self._actions.look_up(LookUp(0, log, named), then)

    def _looked(
        self, contact: _Contact, compared: int, named: tuple[int, ...], view: LogView
    ) -> None:
        if contact.stage is not _Stage.LOOKING:
            return
        contact.compared = compared = min(compared, view.newest)
        if compared <= self._shared.get(view.log, 0):
            self._shown(view.log, contact)
            return
        ask = comparison_of((compared, compared))
        if lacking_hashes([ask], view.hashes, named):
            self._compare(view.log, contact, compared, named_for(ask))
        else:
            self._propose(contact, ask, view)

    # Whether a question has arrived

    @property
    def wants_receipt(self) -> bool:
        """Whether a ping is to follow a question."""
        return self._silences.wants_ping

    def receipt_asked(self) -> None:
        """A ping left behind all that was asked."""
        self._silences.ping_sent()

    def receipt_came(self) -> None:
        """That ping was answered."""
        self._silences.pong_came(self._actions.now)

    def _propose(self, contact: _Contact, ask: Ask, view: LogView) -> None:
        request = self._actions.ask(view.log, ask, view, self)
        contact.request = request
        self._move(view.log, contact, _Stage.TO_ASK if request is None else _Stage.ASKED)

    def _learned(self, log: LogKey, contact: _Contact, newest: int) -> None:
        """The other side has told its newest entry."""
        if newest <= self._shared.get(log, 0):
            self._shown(log, contact)
        else:
            contact.compared = newest
            self._ask_next(log, contact)

    def _shown(self, log: LogKey, contact: _Contact) -> None:
        if contact.stage is _Stage.CONTRADICTS:
            # What was asked before that may be answered, or refused, later.
            return
        self._move(log, contact, _Stage.SHOWN)
        contact.request = None
        self._actions.send_again(log)

    # What became of requests, whoever has asked

    def shown_by_confirmation(self, request: Request) -> None:
        """The other side confirmed a proposal of ours; one for a path tells its newest entry."""
        log = request.log
        if log not in self._shared or request.base is None:
            return
        if request.proposal.sparse:
            self._told(request, request.base.end or 0)
        elif (contact := self._awaits(request)) is not None:
            self._move(log, contact, _Stage.COMING)

    def shown_by_cancel(self, request: Request, cancel: Cancel) -> None:
        """The other side cancelled a request. Where it says nothing, there is nothing to notice."""
        log = request.log
        if log not in self._shared or not request.ours or request.confirmed:
            return
        if request.cancel_sent is CancelReason.NOT_WANTED:
            # We took the question back: that is what it answers.
            return
        if cancel.reason is CancelReason.HASH_MISMATCH:
            self.contradicted(log)
        elif request.proposal.sparse:
            self._told(request, 0)
        elif (contact := self._awaits(request)) is not None:
            self._shown(log, contact)

    def _told(self, request: Request, newest: int) -> None:
        contact = self._contacts.get(request.log)
        if contact is None:
            self._newest[request.log] = newest
        elif self._awaits(request) is contact:
            self._learned(request.log, contact, newest)

    def _awaits(self, request: Request) -> _Contact | None:
        """The contact whose question this is, if it has no answer."""
        contact = self._contacts.get(request.log)
        if contact is None or contact.request is not request:
            return None
        return contact if contact.stage in _UNANSWERED else None

    def contradicted(self, log: LogKey) -> None:
        """An entry of the other side does not go with what is held here."""
        if log in self._shared:
            contact = self._contacts.setdefault(log, _Contact(_Stage.SHOWN))
            self._move(log, contact, _Stage.CONTRADICTS)

    # What became of questions

    def cancelled(self, request: Request, cancel: Cancel) -> None:
        """That has shown something, or nothing, whoever has asked."""

    def released(self, request: Request) -> None:
        """One of ours is over."""
        contact = self._contacts.get(request.log)
        if contact is None:
            # The other side may not read the log any more.
            return
        if contact.request is request and contact.stage is _Stage.COMING:
            self._move(request.log, contact, _Stage.STORING)
            self._changed = True

    def lost(self, request: Request) -> None:
        """One of ours gave way to one of the other side's: it is made again."""
        contact = self._awaits(request)
        if contact is not None:
            self._ask_next(request.log, contact)

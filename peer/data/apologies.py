"""Pieces that the other side takes back (point2point.md 8).

In a greedy direction the last piece of a request, or the part of a payload that has come of the
present one, may be taken back once: then the other side's cursor is where it was before. What has
been found wrong and is not taken back before the next piece is the sender's fault.

So a relay may pass on what it has not verified yet, and nobody behind it waits for a whole payload
at each hop; and who forges something is found out all the same. Whether a piece was wrong is known
only when the host has looked at it: an apology that comes before is held, with all that follows,
and tried again. It is one for each piece: what is taken back and sent again for ever is work for
nothing.
"""

from peer.protocol.errors import Violation
from peer.protocol.request import Request

from .links import CannotTakeIn
from .pinning import doubt, doubted, fault, is_counted, is_pinned, miscounted
from .proving import Prover

_RULE = "point2point.md 8"


class Apologies:
    """Takes apologies of the other side."""

    def __init__(self, prover: Prover, *, receive_greedily: bool) -> None:
        self._prover = prover
        self._greedy = receive_greedily

    def take(self, request: Request) -> bool:
        """Go back one piece. False: the piece has no verdict yet, try again when it has.

        Raises Violation, and CannotTakeIn for a payload of which an earlier connection brought a
        part, or that may be another one to the other side.
        """
        incoming, base = request.incoming, request.base
        if base is None:
            raise AssertionError("data is read only for confirmed requests")
        if not self._greedy:
            raise Violation(_RULE, "apology in a safe direction", request.number)
        if incoming.adrift and request.proposal.payloads_only:
            # Nobody here knows which piece it is about, and what comes is thrown away already.
            return True
        inside = incoming.in_piece or incoming.adrift
        begin = incoming.position if inside else incoming.position - 1
        if begin == incoming.apologised_at:
            raise miscounted(request, _RULE, "second apology for the same piece")
        offset = base.offset if begin == 0 else 0
        if inside:
            self._prover.drop_partial(request, discard=True)
            incoming.held_already = False
            if offset and not incoming.discarding:
                # What came before may have had the same source: all of it is asked for anew.
                raise CannotTakeIn("the rest of a payload was taken back")
        else:
            if not incoming.last_was_sent:
                raise miscounted(request, _RULE, "apology for a piece not sent")
            # Without a verdict to come (it is thrown away, or was held already) it is believed.
            judged = incoming.last_was_checked and not incoming.discarding
            if judged and not self._is_wrong(request, begin):
                return False
            if incoming.metadata_at == begin:
                incoming.metadata_at = incoming.metadata_before
                incoming.hashes.pop(base.piece(begin).seq, None)
            incoming.position = begin
            incoming.entry, incoming.last_entry = incoming.last_entry, None
            incoming.pending.pop(begin, None)
        incoming.invalid = None
        incoming.in_piece = incoming.adrift = False
        incoming.last_was_sent = False
        incoming.apologised_at = begin
        incoming.progress = offset
        return True

    def _is_wrong(self, request: Request, begin: int) -> bool:
        """Whether the last piece is known to be invalid; a fault if it is known to be valid."""
        incoming = request.incoming
        if incoming.invalid is not None and incoming.invalid[0] == begin:
            return True
        if incoming.entry is not None:
            self._prover.keep_entry(request, incoming.entry)
        if incoming.verified > begin:
            finding = "apology for valid data"
            if is_counted(request) and not is_pinned(request, begin):
                raise doubt(request, finding, begin)
            raise miscounted(request, _RULE, finding)
        return False


def judge_next_piece(request: Request) -> None:
    """Raise a fault if the piece before the one that begins is wrong and was not taken back."""
    invalid = request.incoming.invalid
    if invalid is not None and doubted(request) is None:
        finding = f"invalid data without an apology: {invalid[1]}"
        raise fault(request, _RULE, finding, invalid[0])

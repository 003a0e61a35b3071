"""Rules of point2point.md 3, 4, 8 and 9: the data channel, verification, and violations."""

TEXT = """
P2P-3.01 must both
  A request transmits, ascending, metadata of the lower pool from lower info to before the start,
  then metadata and payload of every entry, then metadata of the upper pool up to upper info.
P2P-3.02 must both
  What is received is read as that sequence, pools included.
P2P-3.03 must both
  A request with an offset begins with the payload of its start, at that byte, without pools below
  it or metadata of it.
P2P-3.04 must both
  A request with an offset for an entry that is not held is cancelled with 129.
P2P-3.05 violation both
  An offset is below the size of the payload, or 0 if that is 0.
P2P-3.06 must both
  The expected starting hash does not make the metadata of the start transmitted.
P2P-3.07 must both
  A request for payloads only transmits no metadata at all.
P2P-3.08 must both
  A request for payloads only of entries that are not held is cancelled with 129.
P2P-3.09 must both
  A sparse request transmits the shortest path from end to start and no other entry.
P2P-3.10 decided both
  The confirmation of a sparse request without an end sets a finite end.
P2P-3.11 decided both
  A sparse request without an end is cancelled with 129 if the newest entry is below its start.
P2P-3.12 decided both
  The end of a sparse request is lowered only to an entry on its path.
P2P-3.13 must both
  An empty payload is a piece like any other: one packet 8 of length 0, or a skip.
P2P-3.14 decided both
  Packets 7, 8 and 9 of length 0 are violations anywhere else.
P2P-3.15 must both
  Each side has a cursor of its own, which only its own packets move; both sides may send.

P2P-4.01 must any
  The first byte of a data packet tells its kind; lengths and counts are VarU64.
P2P-4.02 violation both
  First bytes 1, 10-15, 17-31, 33-127 and 130-255 are unused.
P2P-4.03 must both
  Author, log id, seqnum and lipmaalink are left out of metadata and rebuilt by the receiver.
P2P-4.04 must any
  A backlink that equals the lipmaalink's target is never carried.
P2P-4.05 must both
  A backlink is left out if the metadata of its target was transmitted in this request, and carried
  otherwise.
P2P-4.06 decided both
  Transmitted is what the packet's sender has sent, or received before its own cursor passed it.
P2P-4.07 decided both
  A piece that was only notified of was not transmitted.
P2P-4.08 must any
  Size, payload hash and signature of metadata stand as they do in the entry: canonical.
P2P-4.09 must both
  One window per direction holds for the whole connection: all requests share it, nothing resets it.
P2P-4.10 must both
  The window holds what packets 9 decompressed to, and nothing of packets 8.
P2P-4.11 must both
  Compressed data never refers back beyond the negotiated window.
P2P-4.12 may both
  A payload may come in any number of packets 7, 8 and 9.
P2P-4.13 must both
  Packets 4, 5 and 6 stand only before the first byte of a payload.
P2P-4.14 must both
  A payload below the minimum or above the maximum is skipped with packet 4 or 5.
P2P-4.15 must both
  Where a skip and a notify would both be right, it is a skip.
P2P-4.16 must both
  A payload that is not held is skipped with packet 6 where skips are allowed.
P2P-4.17 must both
  Who asked for notifications only is notified, and so is who asked for payloads up to a size of a
  larger one.
P2P-4.18 must both
  Pieces that the other side's cursor has passed, and that verified here, are passed by a notify.
P2P-4.19 violation both
  Any other notify is a violation.
P2P-4.20 decided both
  A notify of what has not verified yet is not sent, since an apology may cross it.
P2P-4.21 ours any
  We never send packet 7.
P2P-4.22 must both
  Packet 7 is read: it passes bytes that the reader itself has sent.
P2P-4.23 must both
  A piece joined from bytes of which some were apologised for blames nobody.
P2P-4.24 must both
  One notifies to catch up only when something of one's own follows.
P2P-4.25 may both
  A notify of pieces that the other side has passed may cross these pieces.

P2P-8.01 must both
  Nobody switches to a request of its own that is not confirmed.
P2P-8.02 must both
  Data for one's own proposal is left unread until the answer has come.
P2P-8.03 must both
  A 32 is never held up by data that waits.
P2P-8.04 may both
  Who waits for that answer for more than 30 s may drop the connection.
P2P-8.05 must both
  What is sent in a safe direction has verified before.
P2P-8.06 violation both
  Invalid data in a safe direction ends the connection.
P2P-8.07 may both
  In a greedy direction payload bytes may be passed on as they arrive.
P2P-8.08 must both
  Who finds that it sent an invalid piece apologises at once, switching back to the request first.
P2P-8.09 must both
  No apology follows one's own cancel.
P2P-8.10 must both
  An apology moves the sender's cursor back by one piece, as if that had never been sent.
P2P-8.11 ours both
  Metadata has verified before it is sent, in greedy directions too.
P2P-8.12 violation both
  Starting the next piece of a request instead of apologising for an invalid one is a violation.
P2P-8.13 violation both
  An apology for valid data is a violation.
P2P-8.14 violation both
  A second apology for the same piece is a violation.
P2P-8.15 violation both
  An apology in a safe direction is a violation.
P2P-8.16 may both
  An apology in the middle of a payload is always allowed in a greedy direction, and is the one
  apology for that piece.
P2P-8.17 must both
  The expected starting hash is checked before any data: another history is answered with 133 and
  the entry, an end before the range with 134, a fork before it with 135.
P2P-8.18 must any
  An entry of one's own log leaves only when it is on disk.
P2P-8.19 must both
  Who lacks the lower pool that a proposal builds on answers 128 and proposes what it needs.
P2P-8.20 must both
  Data is never left unread for want of a pool: the request is cancelled with 129 and read past.
P2P-8.21 must both
  A broken connection resumes inside a payload, by a proposal with an offset.
P2P-8.22 must both
  The bytes of a payload count as nothing until the whole has verified.
P2P-8.23 decided both
  A wrong payload that was resumed with bytes from elsewhere blames nobody: it is asked for anew
  from 0.
P2P-8.24 decided any
  One connection at a time feeds a partial payload.

P2P-8.25 decided any
  Who gave a prefix of a payload is remembered with it.
P2P-8.26 ours both
  Who refuses all that it is asked gets what it asks for nevertheless, within a round trip; who does
  not answer it gets entries that nobody else has 3 s after a pong has shown that it was asked.

P2P-9.01 must both
  A violation ends the connection at once, with a reason that names the rule, the request and the
  offending value, in the log and in the API.
P2P-9.02 must both
  The other side of a violation sees the transport close.
P2P-9.03 must both
  No violation loses or alters stored data.
P2P-9.04 must both
  No other connection notices a violation.
P2P-9.05 violation both
  Control: a proposal without credit.
P2P-9.06 violation both
  Control: a number of the wrong parity.
P2P-9.07 violation both
  Control: a number in use.
P2P-9.08 violation both
  Control: adjusting a request that is not active.
P2P-9.09 violation both
  Control: cancelling a request that is not active.
P2P-9.10 violation both
  Control: adjusting a request after one's own cancel of it.
P2P-9.11 violation both
  Control: cancelling a request again.
P2P-9.12 violation both
  Control: a confirmation without eagerness.
P2P-9.13 violation both
  Control: an entry in 133 or 135 that does not parse.
P2P-9.14 violation both
  Data: switching to a request that is not active.
P2P-9.15 violation both
  Data: a 32 of a request that is not active, or a second one.
P2P-9.16 violation both
  Data: anything but a switch after the 32 of the current request.
P2P-9.17 violation both
  Data: anything but a switch or a 32 before the first switch.
P2P-9.18 violation both
  Data: metadata where a payload is due.
P2P-9.19 violation both
  Data: a payload, or a skip of one, where metadata is due.
P2P-9.20 violation both
  Data: moving past the end of the request.
P2P-9.21 violation both
  Data: more payload than the metadata said.
P2P-9.22 violation both
  Data: a compressed packet with window 0.
P2P-9.23 violation both
  Data: a compressed packet with an offset beyond the window.
P2P-9.24 violation both
  Data: a compressed packet that does not decompress to its length.
P2P-9.25 violation both
  Data: packet 4 for a payload that is not below the minimum.
P2P-9.26 violation both
  Data: packet 5 for a payload that is not above the maximum.
P2P-9.27 violation both
  Data: packet 6 where payloads are mandatory.
P2P-9.28 violation both
  Data: a notify where data is due.
P2P-9.29 violation both
  Data: metadata or a payload where only a notify is due.
P2P-9.30 violation both
  Data: metadata whose fields break the encoding of entries.
"""

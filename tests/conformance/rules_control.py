"""Rules of point2point.md 1, 2, 5, 6 and 7: setup and the control channel."""

TEXT = """
P2P-1.01 must both
  The endpoint that opened the connection is proactive, the other one reactive.
P2P-1.02 must both
  Each side sends its setup at once and waits for nothing.
P2P-1.03 must any
  Setup is one byte (bit 7: wants to send greedily, bit 8: accepts greedy data), then the largest
  window for sending and the largest one for receiving, each a VarU64.
P2P-1.04 must both
  The six high bits of the setup's first byte mean nothing to a reader.
P2P-1.05 must both
  The six high bits of the setup's first byte are written as 0.
P2P-1.06 must both
  A direction is greedy if its sender wants that and its receiver accepts it, and else safe.
P2P-1.07 must both
  A direction's window is the smaller of what its sender and its receiver said; 0 is no compression.
P2P-1.08 ours both
  By default greediness is wanted and accepted, with windows of 65,536 bytes both ways.
P2P-1.09 ours both
  A peer whose setup is not complete after 10 s is dropped, however many bytes it sent.
P2P-1.10 decided both
  Stream 0 is control and stream 1 is data; both exist from the start.
P2P-1.11 decided both
  Control has infinite credit both ways: writing it needs no grant.
P2P-1.12 decided both
  Data starts without credit: none is written before the other side has granted some.
P2P-1.13 decided both
  The creation of streams counts as closed both ways: no other stream can ever exist, and a global
  Write, Credit, Close or StopRead ends the connection.
P2P-1.14 decided both
  Global Ping and Pong stay legal although the creation of streams is closed.
P2P-1.15 may both
  Bymux packets may come right behind the setup bytes, in the same segment.
P2P-1.16 must both
  A session ends in good order by Close and StopRead on both streams; then the transport closes.
P2P-1.17 must both
  What has arrived is verified and stored before the Close of the data stream is answered.
P2P-1.18 must both
  The side that closes waits no longer than 5 s for the other one.
P2P-1.19 must both
  A transport that ends otherwise is a lost connection: what was verified is kept, nothing else.
P2P-1.20 must both
  The two channels are read independently; no order of control against data is taken for granted.
P2P-1.21 must both
  Control messages are handled at once, in bounded memory.
P2P-1.22 must both
  Data is read under credit: an endpoint grants what it can buffer, and grants anew what it has
  consumed.

P2P-2.01 must any
  The first byte of a control message tells its kind; numbers are VarU64.
P2P-2.02 violation both
  First bytes 136 to 159 are unused.
P2P-2.03 decided any
  A cancel names its request right behind its first byte.
P2P-2.04 decided any
  Entries inside cancels 133 (one) and 135 (two) are whole canonical encodings.
P2P-2.05 must any
  The flags of an adjust say what it changes; the values follow in the order: eager size, end, upper
  info, minimum, maximum.
P2P-2.06 must any
  The flags of a proposal say what it asks for; its fields follow in the specified order.
P2P-2.07 must any
  A proposal carries the expected starting hash if it has an offset or a lower info above 1, and
  only then.
P2P-2.08 must both
  The expected starting hash is that of the start entry with an offset, else that of lipmaa(lower
  info).
P2P-2.09 must both
  The proactive side proposes even request numbers, the reactive one odd numbers.
P2P-2.10 may both
  A number may be used again once its request is fully cancelled.
P2P-2.11 must both
  A proposal costs a unit of credit: without credit nothing is proposed.
P2P-2.12 violation both
  At most 2^64 - 1 units of credit may be outstanding.
P2P-2.13 ours both
  An endpoint grants 64 units at the start.
P2P-2.14 ours both
  One more unit is granted for each request of the other side that is confirmed.
P2P-2.15 ours both
  Credit for what was refused, or cancelled by the other side, comes back at a limited pace.
P2P-2.16 must both
  The minimum, maximum and eagerness of a proposal are the proposer's interests from the start: what
  is sent to it obeys them.
P2P-2.17 must both
  The other side's interests start with minimum 0, maximum 2^64 - 1 and mandatory payloads; its
  confirmation changes only what it says.
P2P-2.18 must both
  The confirmation is the other side's first adjust, and sets its eagerness.
P2P-2.19 may both
  Numbers in messages need not be encoded canonically.
P2P-2.20 may both
  A grant of 0 units is allowed.

P2P-5.01 decided both
  Data is judged against the loosest setting that was ever in force for the request.
P2P-5.02 must both
  An end or upper info that is not below the one in force is ignored, and not checked further.
P2P-5.03 violation both
  A minimum payload size never goes down.
P2P-5.04 violation both
  A maximum payload size never goes up.
P2P-5.05 violation both
  An end is never below the start.
P2P-5.06 violation both
  An upper info is never below the end.
P2P-5.07 violation both
  A lower info is never above the start.
P2P-5.08 violation both
  A seqnum is never 0.
P2P-5.09 violation both
  A lower info is in the lower pool of the start.
P2P-5.10 violation both
  An upper info is in the upper pool of the end.
P2P-5.11 decided both
  The base sequence is the proposal as changed by the confirmation alone, and the confirmation is
  judged against the proposal alone.
P2P-5.12 decided both
  A confirmation may pick any lower end, with an upper info of the new end's pool; without one, the
  upper info is the new end.
P2P-5.13 decided both
  Every other end or upper info only cuts the base sequence: the lowest end counts, and an end below
  the base's leaves no upper pool.
P2P-5.14 decided both
  Data is read in the base sequence; what was under way beyond a cut is kept if it verifies.
P2P-5.15 ours both
  We lower nothing before the confirmation.
P2P-5.16 decided both
  Nobody leaves eagerness "notify only" in a request.
P2P-5.17 may both
  The proposer may adjust its request before the confirmation.

P2P-6.01 must both
  Four messages end a request: a cancel and a packet 32, by each side.
P2P-6.02 must both
  After its own cancel a side sends nothing for the request but its 32, and nothing after that.
P2P-6.03 must both
  A cancel is answered with a cancel: 131, or one's own reason if they crossed.
P2P-6.04 must both
  Data of a request that one has cancelled is still read and moved through the sequence, up to the
  other side's 32.
P2P-6.05 must both
  After all four messages the number is free again.
P2P-6.06 decided both
  For an own request that is not confirmed, the 32 waits for the other side's cancel.
P2P-6.07 may both
  A 32 may arrive before the cancel that it belongs to.
P2P-6.08 may both
  A 32 may stand between any two packets of other requests.
P2P-6.09 decided both
  A 32 may arrive before the first switch.
P2P-6.10 must both
  After the 32 of the current request only a switch may follow, even if its number is used again.
P2P-6.11 must both
  A side that has another 32 to send after that of its current request first switches to that other
  request, though it has cancelled it.
P2P-6.12 must both
  A limit that is hit is told by the cancel that fits: 129 for resources, 132 for a mandatory
  payload that is not there.
P2P-6.13 must both
  After a 128 the range is not proposed again, unless either side has made a later proposal for the
  log.
P2P-6.14 must both
  After a 129 the proposal is tried again later, with back-off.
P2P-6.15 must both
  Entries of a 133 or 135 have their signatures checked; a fork that they prove is recorded.
P2P-6.16 must both
  After a 134 exactly the entry that it names is proposed.
P2P-6.17 ours both
  We never use a number twice in a session.
P2P-6.18 decided both
  A number that waits only for its proposer's 32 may be proposed again.
P2P-6.19 decided both
  Adjusts and cancels apply to such a proposal at once; only its answer waits for the 32.
P2P-6.20 decided both
  One proposal at most waits for its number.
P2P-6.21 decided both
  The side whose cursor reaches the end of a finite range first sends its 130 and its 32 right
  behind its last packet.
P2P-6.22 decided both
  Who receives a 130 reads on to the 32 and keeps what verifies.
P2P-6.23 decided both
  If nobody sends for 5 s in a finite range in which both only notify, its proposer ends it with
  130.

P2P-6.24 decided both
  A 130 waits until there is nothing left that might have to be apologised for.

P2P-7.01 must both
  Of two overlapping proposals that crossed, the one with the larger start was never sent.
P2P-7.02 must both
  With equal starts, the reactive side's proposal was never sent.
P2P-7.03 decided both
  A proposal has no answer until an adjust or a cancel for it has arrived, even if its proposer has
  cancelled it meanwhile.
P2P-7.04 decided both
  Overlap is judged from start to end as proposed, whatever the kind and whatever was adjusted
  since; pools do not count, and open is without limit.
P2P-7.05 decided both
  A received proposal is compared with one's own in the order in which these were sent, up to where
  it is dropped.
P2P-7.06 decided both
  A dropped proposal's number and unit of credit are free again on both sides, and it earns no
  other credit.
P2P-7.07 decided both
  Adjusts and cancels of a number that was dropped are ignored until the other side has answered the
  winner or a later proposal, or has proposed that number again.
P2P-7.08 decided both
  Nothing is proposed that overlaps a received proposal without an answer.
P2P-7.09 decided both
  What the winner of two proposals does not cover may be proposed again once the winner is answered
  or dropped.
P2P-7.10 may both
  A proposal may overlap confirmed requests.
P2P-7.11 must both
  However the messages of two honest sides cross, neither sees a violation and nothing stays open.
"""

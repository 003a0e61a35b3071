"""Rules of bymux.md."""

TEXT = """
BYMUX-1.01 must any
  A packet is a header byte (type, global bit, widths), then an id and an amount where the type has
  them, big-endian.
BYMUX-1.02 must any
  A writer uses the smallest widths that fit.
BYMUX-1.03 must both
  A reader accepts any width.
BYMUX-1.04 must both
  A global packet has no stream id, and the bits of its width mean nothing.
BYMUX-1.05 violation both
  A packet of a stream that is not active ends the connection.
BYMUX-1.06 violation both
  Types 110 and 111 do not exist: they end the connection.

BYMUX-2.01 must both
  Writing n bytes to a stream costs n units of its credit; headers are free.
BYMUX-2.02 violation both
  A Write beyond the credit ends the connection.
BYMUX-2.03 must any
  A sum of 2^64 - 1 makes the credit of a stream infinite.
BYMUX-2.04 violation both
  A sum above 2^64 - 1 ends the connection.
BYMUX-2.05 must any
  A Credit of 0 makes the credit of a stream infinite.
BYMUX-2.06 may both
  Another Credit of 0 of an infinite stream is ignored.
BYMUX-2.07 violation both
  Any other Credit of an infinite stream ends the connection.
BYMUX-2.08 must any
  Infinite credit is no leave to use unbounded memory.
BYMUX-2.09 must any
  A unit of global credit lets the other side create one stream.
BYMUX-2.10 violation both
  Global credit above 2^64 - 1 ends the connection.
BYMUX-2.11 must any
  Credit is restored once what could be granted is at least what the other side still has, and at
  least one.

BYMUX-3.01 must both
  A global Ping is answered with a global Pong, a stream's Ping with that stream's Pong.
BYMUX-3.02 may both
  Pongs that nobody asked for are legal.
BYMUX-3.03 must both
  Pings are answered at once, never behind data that is not processed.

BYMUX-4.01 must any
  A Close is answered by StopRead unless that was sent already.
BYMUX-4.02 must any
  A StopRead is answered by Close unless that was sent already.
BYMUX-4.03 violation both
  A Write after Close ends the connection.
BYMUX-4.04 violation both
  A second Close ends the connection.
BYMUX-4.05 violation both
  A Credit after StopRead ends the connection.
BYMUX-4.06 violation both
  A second StopRead ends the connection.
BYMUX-4.07 violation both
  A Ping or Pong of a stream after both Close and StopRead ends the connection.
BYMUX-4.08 must any
  A stream is active until both sides have sent both; then its id is free.
BYMUX-4.09 must any
  The global forms say the same of creating streams and leave existing streams alone.
BYMUX-4.10 must any
  An endpoint sends none of these itself: its caller is refused.

BYMUX-5.01 must both
  A global Write creates the stream that it names: even ids by the proactive side, odd ones by the
  reactive side.
BYMUX-5.02 violation both
  Creating a stream with an id of the other side's parity ends the connection.
BYMUX-5.03 violation both
  Creating a stream whose id is in use ends the connection.
BYMUX-5.04 violation both
  Creating a stream without global credit ends the connection.
BYMUX-5.05 must any
  Both sides start without credit on a new stream, unless they agreed on something else.

BYMUX-6.01 must any
  Write packets stay small: 16 KiB at most by default.
BYMUX-6.02 must any
  Streams that have something to send take turns.
BYMUX-6.03 must any
  Credit, Ping, Pong, Close and StopRead go out ahead of data.

BYMUX-7.01 may both
  Writes of 0 bytes and Pings are legal, as many as cost little.
BYMUX-7.02 ours both
  Too much work that moves nothing ends the connection.
BYMUX-7.03 must any
  What is owed because of a peer's packets is kept as counts and flags.
BYMUX-7.04 must any
  Reading never waits for writing.

BYMUX-8.01 must any
  Two sides may begin in any state that they agree on.
"""

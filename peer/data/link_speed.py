"""Whether a link is so fast that compressing would hold it up: measured, not assumed.

What is compared is the *speed* at which payloads get to the other side: bytes, as they were before
compression, for which it gave back credit, by the time that took. All that may be slow is in there,
on both sides: making and undoing compression, the link, the disks. The rule:

- At first everything that shrinks is compressed.
- A *sample* is the time from one arrival of credit to another, at least 50 ms later, in which there
  always was something to send, and half of which at least was of the kind that shrinks.
- When a sample is complete, and at most once in a while (at first at once; then after 4 s, twice as
  long each time, up to about 4 minutes), the other way is tried for one sample. Its first sample is
  not looked at, as it tells of what was under way.
- The new way is kept if it was faster by a tenth, else the old one goes on.
- What can hardly win is not tried: no compression where raw bytes come three times as fast as
  compressed ones last did; and where the link is *slow*, raw ones only after 16 MiB (twice as much
  each time, up to 1 GiB), as a few of them cost such a link much. It is slow if compressed ones
  come at less than 4 MB/s, and bytes arrived at less than half the pace at which they were made in
  the time that was not spent waiting (for the transport to take them, for credit). Then there is
  time, too, to look longer for what repeats.
- When the speed doubles, or halves, the link may have changed, and the other way is tried again
  soon (but no sooner than 1 s after the last time).

Sans-io: the time is what the caller says it is.
"""

from typing import Final

from msgspec import Struct

SAMPLE_S: Final = 0.05
SAMPLE_BYTES: Final = 64 * 1024
"""A sample lasts so long and holds so much at least: of less, how credit happens to be given back
would be measured, and not the link."""
IDLE_S: Final = 0.05
"""Running dry for longer than this spoils a sample: then the link is not what is waited for."""

TRY_AGAIN_S: Final = 4.0
TRY_AGAIN_S_MAX: Final = 256.0
TRY_SOON_S: Final = 1.0

GAIN: Final = 1.1
SLOW_BYTES_PER_S: Final = 4e6
BEHIND: Final = 0.5
SLOW_TRY_BYTES: Final = 16 * 2**20
SLOW_TRY_BYTES_MAX: Final = 2**30
FAST: Final = 3.0


class _Sample(Struct):
    """What went into the link since `began_at`."""

    began_at: float
    delivered: int
    payload_bytes: int = 0
    shrinking_bytes: int = 0
    """Those that were, or would have been, compressed."""
    saved_bytes: int = 0
    wire_bytes: int = 0
    waited_s: float = 0.0
    """How long the transport, or credit, was waited for."""


class Pull(Struct, frozen=True):
    """What the transport was given at one time, and how it had taken what it was given before."""

    taken: int
    """Bytes of data."""
    delivered: int
    """Bytes for which the other side has given back credit, since the start."""
    dry: bool = False
    """Whether there was no more to give."""
    blocked: bool = False
    """Whether there was no credit for more."""
    waited_s: float = 0.0
    """How long the transport took to take the bytes before."""


class LinkSpeed:
    """Chooses between compressing and not, for one direction of one connection."""

    def __init__(self) -> None:
        self.compressing = True
        """Whether what shrinks is to be compressed now."""
        self.slow = False
        """Whether the link is what is waited for, so that there is time to compress well."""
        self._speeds: dict[bool, float] = {}
        self._sample: _Sample | None = None
        self._skipped = True
        self._trying = False
        self._settled_speed = 0.0
        self._tried_at = float("-inf")
        self._try_again_s = 0.0
        self._try_again_bytes = SLOW_TRY_BYTES
        self._moved_bytes = 0.0
        """Payload bytes since the other way was last tried, as far as they were measured."""
        self._delivered = 0
        self._dry_since: float | None = None
        self._blocked_since: float | None = None

    def packed(self, payload_bytes: int, packet_bytes: int, *, shrinking: bool) -> None:
        """A packet was made of so many payload bytes, `shrinking` ones or others."""
        sample = self._sample
        if sample is not None:
            sample.payload_bytes += payload_bytes
            sample.saved_bytes += max(payload_bytes - packet_bytes, 0)
            if shrinking:
                sample.shrinking_bytes += payload_bytes

    def pulled(self, now: float, pull: Pull) -> None:
        """What the transport was given."""
        taken, delivered, dry = pull.taken, pull.delivered, pull.dry
        if taken and self._dry_since is not None:
            if now - self._dry_since > IDLE_S:
                self._sample = None
            self._dry_since = None
        if dry and not taken and self._dry_since is None:
            # Making what is taken takes time too: only the next, empty pull begins a pause.
            self._dry_since = now
        arrived = delivered > self._delivered
        self._delivered = delivered
        sample = self._sample
        if sample is None:
            if taken:
                self._sample = _Sample(now, delivered)
            return
        sample.wire_bytes += taken
        sample.waited_s += pull.waited_s
        if self._blocked_since is not None and (taken or arrived):
            sample.waited_s += now - self._blocked_since
            self._blocked_since = None
        if pull.blocked and not taken and self._blocked_since is None:
            self._blocked_since = now
        if arrived and now - sample.began_at >= SAMPLE_S:
            delivered_bytes = delivered - sample.delivered
            if delivered_bytes >= SAMPLE_BYTES:
                self._sample = _Sample(now, delivered)
                self._judge(now, sample, delivered_bytes)

    def _judge(self, now: float, sample: _Sample, delivered_bytes: int) -> None:
        if not self._skipped:
            self._skipped = True
            return
        if not sample.wire_bytes or 2 * sample.shrinking_bytes < sample.payload_bytes:
            return
        moved_bytes = delivered_bytes * (1 + sample.saved_bytes / sample.wire_bytes)
        took_s = now - sample.began_at
        speed = moved_bytes / took_s
        self._moved_bytes += moved_bytes
        self._speeds[self.compressing] = speed
        busy_s = max(took_s - sample.waited_s, 0.0)
        behind = delivered_bytes * busy_s < BEHIND * sample.wire_bytes * took_s
        self.slow = behind and speed < SLOW_BYTES_PER_S
        if self._trying:
            self._trying = False
            if speed < GAIN * self._speeds[not self.compressing]:
                self._change()
            self._settled_speed = self._speeds.get(self.compressing, speed)
        elif self._worth_trying(now, speed):
            self._trying = True
            self._tried_at = now
            self._moved_bytes = 0.0
            self._change()

    def _worth_trying(self, now: float, speed: float) -> bool:
        since = now - self._tried_at
        settled = self._settled_speed
        if settled and not settled / 2 < speed < settled * 2 and since >= TRY_SOON_S:
            self._try_again_s = 0.0
            self._settled_speed = speed
        other = self._speeds.get(not self.compressing)
        if self.compressing and self.slow:
            if self._moved_bytes < self._try_again_bytes:
                return False
            self._try_again_bytes = min(2 * self._try_again_bytes, SLOW_TRY_BYTES_MAX)
            return True
        hopeless = not self.compressing and other is not None and speed > FAST * other
        if hopeless or since < self._try_again_s:
            return False
        self._try_again_s = min(max(2 * self._try_again_s, TRY_AGAIN_S), TRY_AGAIN_S_MAX)
        return True

    def _change(self) -> None:
        self.compressing = not self.compressing
        self._skipped = False

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
- What cannot win is not tried: no raw bytes where compressed ones come at less than 4 MB/s, as
  every machine compresses faster, so the link is what is slow; no compression where raw bytes come
  three times as fast as compressed ones last did.
- Where it is below those 4 MB/s there is time to look longer for what repeats.
- When the speed doubles, or halves, the link may have changed, and the other way is tried again
  soon (but no sooner than 1 s after the last time).

Sans-io: the time is what the caller says it is.
"""

from dataclasses import dataclass
from typing import Final

SAMPLE_S: Final = 0.05
SAMPLE_BYTES: Final = 64 * 1024
IDLE_S: Final = 0.05
"""Running dry for longer than this spoils a sample: then the link is not what is waited for."""

TRY_AGAIN_S: Final = 4.0
TRY_AGAIN_S_MAX: Final = 256.0
TRY_SOON_S: Final = 1.0

GAIN: Final = 1.1
SLOW_BYTES_PER_S: Final = 4e6
FAST: Final = 3.0


@dataclass(slots=True)
class _Sample:
    """What went into the link since `began_at`."""

    began_at: float
    delivered: int
    payload_bytes: int = 0
    shrinking_bytes: int = 0
    """Those that were, or would have been, compressed."""
    saved_bytes: int = 0
    wire_bytes: int = 0


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
        self._delivered = 0
        self._dry_since: float | None = None

    def packed(self, payload_bytes: int, packet_bytes: int, *, shrinking: bool) -> None:
        """A packet was made of so many payload bytes, `shrinking` ones or others."""
        sample = self._sample
        if sample is not None:
            sample.payload_bytes += payload_bytes
            sample.saved_bytes += max(payload_bytes - packet_bytes, 0)
            if shrinking:
                sample.shrinking_bytes += payload_bytes

    def pulled(self, now: float, taken: int, delivered: int, *, dry: bool) -> None:
        """The transport took `taken` bytes of data; the other side gave credit for `delivered`.

        `delivered` counts from the start. `dry`: there was no more to take, although more might
        have been sent.
        """
        if taken and self._dry_since is not None:
            if now - self._dry_since > IDLE_S:
                self._sample = None
            self._dry_since = None
        if dry and self._dry_since is None:
            self._dry_since = now
        arrived = delivered > self._delivered
        self._delivered = delivered
        sample = self._sample
        if sample is None:
            if taken:
                self._sample = _Sample(now, delivered)
            return
        sample.wire_bytes += taken
        if arrived and now - sample.began_at >= SAMPLE_S:
            delivered_bytes = delivered - sample.delivered
            if delivered_bytes >= SAMPLE_BYTES:
                self._sample = _Sample(now, delivered)
                self._judge(now, sample, delivered_bytes / (now - sample.began_at))

    def _judge(self, now: float, sample: _Sample, wire_speed: float) -> None:
        if not self._skipped:
            self._skipped = True
            return
        if not sample.wire_bytes or 2 * sample.shrinking_bytes < sample.payload_bytes:
            return
        speed = wire_speed * (1 + sample.saved_bytes / sample.wire_bytes)
        self._speeds[self.compressing] = speed
        self.slow = speed < SLOW_BYTES_PER_S
        if self._trying:
            self._trying = False
            if speed < GAIN * self._speeds[not self.compressing]:
                self._change()
            self._settled_speed = self._speeds.get(self.compressing, speed)
        elif self._worth_trying(now, speed):
            self._trying = True
            self._tried_at = now
            self._change()

    def _worth_trying(self, now: float, speed: float) -> bool:
        since = now - self._tried_at
        settled = self._settled_speed
        if settled and not settled / 2 < speed < settled * 2 and since >= TRY_SOON_S:
            self._try_again_s = 0.0
            self._settled_speed = speed
        other = self._speeds.get(not self.compressing)
        if self.compressing:
            hopeless = speed < SLOW_BYTES_PER_S
        else:
            hopeless = other is not None and speed > FAST * other
        if hopeless or since < self._try_again_s:
            return False
        self._try_again_s = min(max(2 * self._try_again_s, TRY_AGAIN_S), TRY_AGAIN_S_MAX)
        return True

    def _change(self) -> None:
        self.compressing = not self.compressing
        self._skipped = False

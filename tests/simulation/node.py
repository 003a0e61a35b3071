"""A node: a real store on a simulated disk, its host, and a process that may die."""

import errno
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacl.signing import SigningKey

from logstore import (
    Appended,
    Follow,
    KeepRule,
    LogFollowed,
    LogUnknown,
    NewEntry,
    PayloadState,
    PeerRule,
    Store,
    StoreError,
    StoreFailed,
    Subscription,
)
from peer import Buckets, LogChanged
from peer.node.doors.admission import Admission, Doors
from peer.node.doors.pausing import Pausing
from peer.node.interests import InterestBook, Wanted
from peer.node.links.sources import Place
from peer.protocol.tracing import Tracer
from tests.logstore.disk import PowerCutError, SimDisk, SimFile
from wire import LogKey

from . import room
from .host import Ordered, Pace, SimHost, SimSources
from .keeping import Keeps
from .link import End
from .room import Room
from .truth import Broken, Made, short

if TYPE_CHECKING:
    from .world import World

POLL_S = 1.0
"""How often a host looks for what was committed without its doing."""
LATE_S = 60.0
"""By then a process that is gone has opened its last file."""
LOOK_FOR_PARTS_S = 3600.0
"""How often it looks for parts of payloads of which nothing comes any more."""


class SimNode:
    """One machine of a world. `alive`: whether its process runs."""

    def __init__(self, world: "World", name: str, folder: Path, doors: Doors | None = None) -> None:
        """`doors`: who is let in that has no row, if not as in the whole world."""
        self.world = world
        self.name = name
        self.rng = world.plan.rng(f"node {name}")
        self.disk = self._new_disk()
        self._old_disks: list[SimDisk] = []
        self.alive = False
        self.ends: Ordered[End] = Ordered()
        self.acknowledged: dict[LogKey, int] = {}
        """Own entries that `append` has returned."""
        self.seen: dict[LogKey, LogChanged] = {}
        """What was last told of each log."""
        self.checked = 0
        """The place in the change feed up to which the store was checked."""
        self.failing: dict[str, int] = {}
        """Operations of the disk that fail now, and with which error number."""
        self.faults = 0
        """How often that has happened."""
        self.drops = Counter[LogKey]()
        """How often payloads of a log were, or were to be, deleted."""
        self.forgets = 0
        """How often logs were, or were to be, forgotten."""
        self.power_cut_at: int | None = None
        self.room = Room(self)
        self.keeps = Keeps(self)
        self.doors = doors or world.doorkeeper.doors
        self.admission = Admission(b"", self.doors, {})
        """What its peers may do, as the sessions are told."""
        self.rules_changed = 0
        """How often what goes for its peers has changed."""
        self.is_restored = False
        """Whether its store was put back as it once was, and nobody has confirmed it since."""
        self._folder = folder / name
        self.pace = Pace(world.clock, random.Random(self.rng.random()), 0.0)
        self.store = Store.create(self._folder, signing_key=_key(name), system=self.disk)
        self.store.close()
        self.start()

    # The process

    def start(self) -> None:
        """Opens the store and begins to work."""
        self.failing.clear()
        self.power_cut_at = None
        self.disk.fault = lambda kind, number: None
        self.store = Store.open(self._folder, system=self.disk)
        if self.store.own_logs_read_only is not None and not self.is_restored:
            raise Broken(f"{self.name} may not sign: {self.store.own_logs_read_only}")
        self.disk.fault = self._disk_fault
        self.pace = Pace(self.world.clock, self.pace.rng, self.world.plan.host_delay_s)
        self.pace.power_lost = self._power_lost
        self._make_reads_fail()
        if room.TROUBLE in self.world.plan.troubles:
            self.room.opened()
        self.host = SimHost(self.store, self.pace)
        self.host.quota_watchers.add(self.room.refused)
        self.buckets = Buckets.of(self.world.plan.config)
        self.sources = SimSources(self.pace, self.host.when_payloads_kept)
        self.book = InterestBook(self.store.author).load(self.store)
        self.admission = Admission(self.store.author, self.doors, {})
        self.admission.pausing = Pausing({}, self.disk.now_us)
        self.world.doorkeeper.opened(self)
        self._take_rules()
        self.host.watchers.add(self._logs_changed)
        self.host.want_watchers.add(self._others_wanted)
        self._poll_later()
        self.keeps.opened()
        if self.world.plan.hours:
            self._give_up_parts()
        self.alive = True
        if not self.is_restored:
            self._check_own_logs()

    def crash(self, *, power: bool) -> None:
        """The process is gone at once; with the power also what was not synced."""
        if not self.alive:
            return
        self.world.note(f"{self.name} {'loses its power' if power else 'is killed'}")
        self.alive = False
        self.disk.fault = _gone
        self.pace.life.over = True
        for end in self.ends:
            end.forget()
            end.link.cut(end, "the other side is gone")
        self.store.close()
        self._survive(power=power)

    def _survive(self, *, power: bool) -> None:
        """What is on the disk goes on without the old process, which may close its files late."""
        old = self.disk
        if power:
            old.cut_power()
        old.fault = _gone
        self._old_disks.append(old)
        if self.world.plan.hours:
            # A day has many processes; what one has open at its end it still has.
            self.world.clock.after(LATE_S, old.files.clear)
        self.disk = self._new_disk()
        self.disk.boots, self.disk.put_back = old.boots, set(old.put_back)
        for name, file in old.files.items():
            self.disk.files[name] = SimFile(
                bytearray(file.seen),
                bytearray(file.platter),
                list(file.pending),
                file.named,
                modified_us=file.modified_us,
            )

    def _new_disk(self) -> SimDisk:
        disk = SimDisk(self.rng.randrange(1 << 30))
        disk.elapsed_s = self.world.clock.read
        return disk

    def image(self, *, whole: bool) -> dict[str, bytes]:
        """What a copy of the store has, or one of the whole machine."""
        inside = str(self._folder)
        files = self.disk.files.items()
        return {name: bytes(f.seen) for name, f in files if whole or name.startswith(inside)}

    def put_back(self, image: dict[str, bytes]) -> None:
        """Gives the disk what an image has, while no process runs; the inodes stay the same."""
        inside = str(self._folder)
        for name in [name for name in self.disk.files if name.startswith(inside)]:
            del self.disk.files[name]
        for name, content in image.items():
            self.disk.files[name] = SimFile(bytearray(content), bytearray(content))
        self.disk.put_back |= self.disk.files.keys()
        self.is_restored = True
        self.acknowledged.clear()
        self.seen.clear()
        self.checked = 0
        self.keeps.restored()

    def close(self) -> None:
        """The end of the world."""
        self.pace.life.over = True
        self.disk.fault = lambda kind, number: None
        self.store.close()
        for disk in (self.disk, *self._old_disks):
            disk.unregister()

    def _power_lost(self) -> bool:
        if self.power_cut_at is None or self.disk.operations < self.power_cut_at:
            return False
        self.crash(power=True)
        self.world.restart_later(self, self.rng)
        return True

    def _disk_fault(self, kind: str, number: int) -> None:
        if self.power_cut_at is not None and number >= self.power_cut_at:
            raise PowerCutError(errno.EIO, "no power")
        code = self.failing.get(kind)
        if code is not None and self.rng.random() < 0.5:
            self.world.note(f"{self.name} fails to {kind}")
            self.faults += 1
            raise OSError(code, "simulated")

    def recover(self, kind: str) -> None:
        """The disk does this again."""
        self.failing.pop(kind, None)

    def _make_reads_fail(self) -> None:
        """What the store reads fails while `failing` says so."""
        for name in ("read", "log", "open_payload"):
            setattr(self.store, name, partial(self._read, getattr(self.store, name)))

    def _read(self, read: Callable[..., Any], *args: Any, **how: Any) -> Any:  # noqa: ANN401
        if "read" in self.failing and self.rng.random() < 0.2:
            self.world.note(f"{self.name} fails to read")
            self.faults += 1
            raise StoreFailed("the disk failed", self.name, "replace it")
        return read(*args, **how)

    # What its programs do

    def append(self, log_id: int, payloads: list[bytes], *, end: bool) -> None:
        """Signs entries; they are acknowledged later."""

        def work() -> list[Appended]:
            appended = self.store.append(payloads, log_id=log_id, end_of_log=end)
            for each in appended:
                self.world.truth.add(each.key, each.seq, each.hash)
            return appended

        def then(appended: list[Appended]) -> None:
            last = appended[-1]
            self.acknowledged[last.key] = last.seq
            self.world.note(f"{self.name} has signed up to {last.seq} of {short(last.key)}")

        self.host.write(work, then)

    def put(self, log: LogKey, made: list[Made]) -> None:
        """Takes entries of an author who is near by and has no store of its own."""
        entries = [NewEntry(each.seq, each.encoded, each.hash, each.payload) for each in made]
        for each in made:
            self.keeps.fetches(log, each.seq, each.seq)
        work = partial(self.store.put_many, [(log, entries)], source="author")
        self.host.write(work, lambda _: None, also=[log])

    def drop(self, log: LogKey, first: int, last: int) -> None:
        """Deletes payloads."""

        def dropped(_: object = None) -> None:
            self.drops[log] += 1

        dropped()
        self.host.write(partial(self.store.drop, log, first, last), dropped, also=[log])

    def forget(self, log: LogKey, *, unfollowed: bool) -> None:
        """Forgets a log, if it is not followed any more."""

        def work() -> bool:
            if unfollowed:
                for target in (log, log.author):
                    self.store.unfollow(target)
            with suppress(LogFollowed, LogUnknown):
                self.store.forget(log)
            return True

        def look(_: object) -> None:
            # What has failed behind the first transaction is forgotten all the same.
            self.forgets += 1
            self.seen.pop(log, None)
            self.keeps.forgot(log)
            self._look_at_wants()

        self.host.write(work, look, failed=look)

    def fetch(self, log: LogKey, first: int, last: int) -> None:
        """Wants entries and their payloads once, whatever is followed."""
        self.keeps.fetches(log, first, last)
        self._change_wanted(partial(self.store.want, log, first, last))

    def keep(self, target: Follow, rule: KeepRule | None) -> None:
        """Has payloads deleted from now on; None: no more."""
        if rule is not None:
            self.keeps.changed(target, rule)
        self._change_wanted(partial(self.store.keep, target, rule))

    def pause(self, peer: bytes | None, until_us: int | None) -> None:
        """Has no connection with a peer, None: with nobody, for a while or until `resume`."""
        self._change_wanted(partial(self.store.pause, peer, until_us=until_us))

    def resume(self, peer: bytes | None) -> None:
        """Takes back `pause`."""
        self._change_wanted(partial(self.store.resume, peer))

    def is_paused(self, peer: bytes) -> bool:
        """Whether its process is to have no connection with a peer now."""
        return self.admission.pausing.holds(peer)

    def follow(self, target: Follow, wanted: Subscription | None = None) -> None:
        self.keeps.follows(target, wanted)
        self._change_wanted(partial(self.store.follow, target, wanted))

    def unfollow(self, target: Follow) -> None:
        self._change_wanted(partial(self.store.unfollow, target))

    def decide(self, change: Callable[[], None]) -> None:
        """Changes the table of peers."""

        def work() -> bool:
            change()
            return True

        self._change_wanted(work)

    def read_rules(self) -> None:
        """The table of peers was changed before anything runs."""
        self.book = self.book.load(self.store)
        self._take_rules()

    def rule_of(self, peer: bytes) -> PeerRule | None:
        """What goes for a peer now; None: it is not let in."""
        return self.admission.rule_for(peer, expected=False)

    def _take_rules(self) -> None:
        self.rules_changed += self.admission.rules != self.book.wanted.peers
        self.admission.take(self.book.wanted.peers)
        self.admission.pausing.take(self.book.wanted.pauses)
        self.world.doorkeeper.took(self, self.book.wanted.peers)
        for node in self.world.nodes:
            if node is not self:
                peer = node.store.author
                self.world.doorkeeper.note(self, peer, self.rule_of(peer))

    def _poll_later(self) -> None:
        def poll() -> None:
            self.host.poll()
            self._poll_later()

        self.world.clock.after(POLL_S, poll, self.pace.life)

    def _give_up_parts(self) -> None:
        """Parts of payloads of which nothing comes any more, as peer.node.room does."""

        def given_up(count: int) -> None:
            self.world.ageing.given_up += count

        self.host.write(partial(self.store.drop_stale, self.world.plan.partial_s), given_up)
        self.world.clock.after(LOOK_FOR_PARTS_S, self._give_up_parts, self.pace.life)

    def _others_wanted(self, wanted: Wanted) -> None:
        if wanted != self.book.wanted:
            self._look_at_wants()

    def _change_wanted(self, change: Callable[[], bool]) -> None:
        """What failed may have been written all the same."""
        self.room.grows_otherwise()

        def look(result: object) -> None:
            self._look_at_wants()

        self.host.write(change, look, failed=look)

    def _look_at_wants(self) -> None:
        """What peer.node.node does when something else may be wanted than before."""
        self.host.write(
            partial(Wanted.load, self.store), self._wanted_read, failed=self._look_again
        )

    def _look_again(self, error: Exception) -> None:
        self.world.clock.after(POLL_S, self._look_at_wants, self.pace.life)

    def _wanted_read(self, wanted: Wanted) -> None:
        if wanted == self.book.wanted:
            return
        self.keeps.took(wanted)
        if self.book.take(wanted):
            self._tell_interests()
        else:
            self.host.write(
                partial(self.book.load, self.store), self._loaded, failed=self._look_again
            )

    def _loaded(self, book: InterestBook) -> None:
        has_forgotten = book.wanted.forgotten != self.book.wanted.forgotten
        self.book = book
        self._tell_interests()
        if has_forgotten:
            for end in list(self.ends):
                end.link.cut(end, "something was forgotten")

    def _tell_interests(self) -> None:
        self._take_rules()
        for end in self.ends:
            peer = end.other.node.store.author
            if self.rule_of(peer) is None:
                end.end("the other side is allowed no longer")
            elif self.is_paused(peer):
                end.finish()
        for end in self.ends:
            end.tell_interests()

    def _logs_changed(self, changes: Sequence[LogChanged]) -> None:
        self.sources.note(changes)
        self.keeps.took(self.book.wanted)
        if self.book.note(changes):
            self._tell_interests()
        fetches = self.book.wanted.fetches
        if any(change.log in fetches for change in changes):
            self._look_at_wants()
        for change in changes:
            self._check_progress(change)

    def tracer(self, place: Place | None) -> Tracer | None:
        """What counts the bytes that a new session receives, in a world that counts them."""
        if not self.world.plan.is_calm:
            return None

        def is_source(log: LogKey) -> bool:
            standing = None if place is None else self.sources.book.standing(place._seat, log)
            return standing is not None and standing.fetching

        return self.world.count.tracer(self.name, is_source, self.store.author)

    # What must hold of it

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits or is being done."""
        return self.host.at_rest and not self.host.open_sinks and self.keeps.at_rest

    def _check_progress(self, change: LogChanged) -> None:
        """Heights only grow, but for what authors do; ends and forks are never taken back."""
        before, self.seen[change.log] = self.seen.get(change.log), change
        if before is None:
            return
        cut_short = change.fork is not None or self.world.truth.wrong_sizes[change.log]
        if not cut_short and change.height < before.height:
            raise Broken(f"{self.name}: {short(change.log)} shrinks, {before} -> {change}")
        forks = (before.fork, change.fork)
        if forks[0] is not None and (forks[1] is None or forks[1] > forks[0]):
            raise Broken(f"{self.name}: a fork is taken back, {before} -> {change}")
        if before.end is not None and change.end is None and not cut_short:
            raise Broken(f"{self.name}: an end is taken back, {before} -> {change}")

    def _check_own_logs(self) -> None:
        """After a restart: all that was acknowledged or seen by anybody is there."""
        for log, newest in sorted(self.acknowledged.items()):
            info = self.store.log(log)
            if info is None or info.height < newest:
                raise Broken(f"{self.name} lost an own entry: {info} instead of {newest}")
        for node in self.world.nodes:
            for log, news in sorted(node.seen.items()):
                own = self.store.log(log) if log.author == self.store.author else news
                if own is None or own.height < news.height:
                    raise Broken(f"{node.name} knows more of {self.name}'s log than itself")

    def payload_of(self, log: LogKey, seq: int) -> bytes:
        """The payload of an entry that is held with it."""
        with Store.open_payload(self.store, log, seq) as reader:
            return reader.read(0, reader.payload_bytes)

    def check_store(self) -> None:
        """Everything that came in since the last time was signed by its author."""
        if not self.alive or self.host._feed.position == self.checked:
            return
        try:
            for entry in self.store.read_changes(
                self.checked, entries_max=1 << 20, bytes_max=1 << 30
            ):
                payload = entry.payload
                if payload is None and entry.payload_state is PayloadState.PRESENT:
                    payload = self.payload_of(entry.key, entry.seq)
                self.world.truth.check(entry, payload)
                self.keeps.check(entry)
            self.room.check()
        except StoreError:
            # The disk fails; another look is taken later.
            return
        except Broken as broken:
            raise Broken(f"{self.name}: {broken}") from None
        self.checked = self.host._feed.position


def _gone(kind: str, number: int) -> None:
    """The fault of a disk that a process has lost."""
    raise PowerCutError(errno.EIO, "no power")


def _key(name: str) -> SigningKey:
    return SigningKey(name.encode().ljust(32, b"."))

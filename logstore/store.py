"""The façade: one class that routes to the files beside it. What only reads is in view.py."""

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from wire import U64_MAX, LogKey

from . import proofs, sharing, wants
from .arguments import (
    IN_MEMORY,
    AnyLog,
    AnyTarget,
    check_batches,
    check_numbers,
    check_payloads,
    check_signing,
)
from .backup import write_backup
from .compacting import Compacting
from .completing import Completed, Completion, complete_all
from .database import Transaction
from .dropping import Dropping
from .errors import EntryRejected, OwnLogsReadOnly, PayloadBusy
from .files import Staged
from .foreign import put_log
from .forgetting import Forgetting
from .keeping import Tidied
from .keyfile import KEY_FILE, read_key_file
from .nodelock import NodeLock
from .opening import Opened, create_in_memory, create_store, open_store
from .own import append_entries
from .own_many import append_batches
from .payloads import ReadyEntry, let_go
from .quotas import Ledger, QuotaLimits, Quotas
from .records import (
    INLINE_BYTES_MAX,
    Appended,
    BackedUp,
    Compacted,
    CompactProgress,
    Dropped,
    Fault,
    Forgotten,
    ForkProof,
    LogVerdict,
    NewEntry,
    PayloadFile,
    PutResult,
)
from .rows import create_log, load_log, save_log
from .sink import Claim, PayloadSink
from .stale import drop_stale
from .system import System
from .tidying import Keeper, tidy
from .wishes import StoreWishes

if TYPE_CHECKING:
    from nacl.signing import SigningKey


class Store(StoreWishes):
    """Replicas of logs in one directory. Blocks; may be used from any thread.

    Several processes may have a store open. What a method has returned from is on disk. Every
    method raises subclasses of StoreError: StoreFull, StoreFailed, StoreDamaged, StoreLocked and
    StoreReadOnly wherever the disk is touched, others where it says so.
    """

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._signing_key = opened.signing_key
        self._identity = opened.identity
        self._receiving: set[Claim] = set()
        self._quotas: Quotas | None = None
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: Path | str,
        *,
        signing_key: "SigningKey | None" = None,
        imported: bool = False,
        system: System | None = None,
    ) -> Self:
        """A new store with a new author key, or the one given. Raises StoreExists, KeyFileError.

        `imported`: the key may have signed entries elsewhere, so own logs are read-only until
        `confirm_identity`.
        """
        opened = create_store(Path(path), signing_key, system or System(), imported=imported)
        return cls(opened)

    @classmethod
    def open(
        cls, path: Path | str, *, readonly: bool = False, system: System | None = None
    ) -> Self:
        """An existing store. Raises NotAStore, StoreTooNew, StoreDamaged, SQLiteTooOld."""
        store = cls(open_store(Path(path), system or System(), readonly=readonly))
        if not readonly:
            store._files.tidy()
        return store

    @classmethod
    def memory(
        cls, *, signing_key: "SigningKey | None" = None, system: System | None = None
    ) -> Self:
        """A store of which nothing survives `close`; large payloads go to a temporary folder."""
        return cls(create_in_memory(signing_key, system or System()))

    def close(self) -> None:
        """Closes the store; a second time does nothing."""
        if self._identity is not None:
            self._identity.close()
        self._files.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- one's own logs -------------------------------------------------------------------------

    def append(
        self,
        payloads: Sequence[bytes | Path | BinaryIO],
        *,
        log_id: int = 0,
        end_of_log: bool = False,
        expected_seq: int | None = None,
    ) -> list[Appended]:
        """Signs one entry for each payload: all of them are on disk, or none exists.

        `end_of_log` makes the last one the last of the log. `expected_seq`: the number that the
        first one is to get, compared in the transaction that signs. Files are read in pieces.
        Raises LogMoved if another one is the next, LogClosed, OwnLogsReadOnly, KeyFileError;
        ValueError without payloads to sign; TypeError for one payload that is not in a list, whose
        parts would be signed one by one.
        """
        check_signing(log_id, expected_seq)
        return self.append_staged(
            self.stage(payloads), log_id=log_id, end_of_log=end_of_log, expected_seq=expected_seq
        )

    def stage(self, payloads: Sequence[bytes | Path | BinaryIO]) -> list[Staged]:
        """Reads and hashes payloads; `append_staged` or `release` takes what this returns.

        Nothing of the store waits meanwhile, however long a stream takes. Raises as `append` does.
        """
        check_payloads(payloads)
        if not all(isinstance(each, IN_MEMORY) for each in payloads):
            # A hint, so that no stream is read in vain: the transaction that signs asks again.
            self._key_to_sign()
        staged: list[Staged] = []
        try:
            staged.extend(self._files.stage(payload) for payload in payloads)
        except BaseException:
            self._files.release(staged)
            raise
        return staged

    def append_staged(
        self,
        staged: Sequence[Staged],
        *,
        log_id: int = 0,
        end_of_log: bool = False,
        expected_seq: int | None = None,
    ) -> list[Appended]:
        """`append` for payloads that were staged; lets go of them, whatever comes of it."""
        sign = partial(self._sign, log_id=log_id, end_of_log=end_of_log, expected_seq=expected_seq)
        try:
            signing_key = self.signing_key()
            if self._identity is None:
                with self._database.write() as transaction:
                    return sign(transaction, signing_key, staged)
            with self._identity.signing() as signing:
                with self._database.write() as transaction:
                    signing.begin(transaction, len(staged))
                    appended = sign(transaction, signing_key, staged)
                    authored = transaction.authored
                signing.end(authored, appended[-1])
        finally:
            self._files.release(staged)
        return appended

    def append_many(
        self,
        batches: Sequence[tuple[int, Sequence[bytes]]],
        *,
        expected_seqs: Sequence[int | None] | None = None,
        ending: Collection[int] = (),
    ) -> list[list[Appended]]:
        """`append` to several own logs: (log id, payloads) each, all on disk or none of them.

        One list of entries for each batch; a log may come more than once. `expected_seqs`: of each
        batch, the number that its first entry is to get, None if that is any. `ending`: the logs
        of which the last entry is to be the end. Raises as `append` does; `log` of the error is
        the one that keeps the others from being stored.
        """
        check_batches(batches, expected_seqs, ending)
        staged: list[Staged] = []
        try:
            ready = []
            for log_id, payloads in batches:
                found = self.stage(payloads)
                staged += found
                ready.append((log_id, found))
            where = self.path or "memory"
            return append_batches(
                self._database,
                self._identity,
                self.signing_key,
                ready,
                expected_seqs,
                ending,
                where,
            )
        finally:
            self._files.release(staged)

    def _sign(
        self,
        transaction: Transaction,
        signing_key: "SigningKey",
        staged: Sequence[Staged],
        *,
        log_id: int,
        end_of_log: bool,
        expected_seq: int | None,
    ) -> list[Appended]:
        where = self.path or "memory"
        sharing.check_uncontested(transaction.db, self.author, (log_id,), where)
        return append_entries(
            transaction,
            signing_key,
            log_id,
            staged,
            end_of_log=end_of_log,
            expected_seq=expected_seq,
        )

    def release(self, staged: Sequence[Staged]) -> None:
        """Lets go of staged payloads that are not to be appended."""
        self._files.release(staged)

    @property
    def own_logs_read_only(self) -> OwnLogsReadOnly | None:
        """Why `append` is refused, None if it is not (bamboo.md One's own logs)."""
        reason = None if self._identity is None else self._identity.why_read_only()
        if reason is not None:
            return reason
        with self._database.read() as db:
            return sharing.why_contested(db, self.author, self.path or "memory")

    @property
    def own_entries_lost(self) -> int:
        """How many entries were signed here and are not held, as far as this store knows."""
        return 0 if self._identity is None else self._identity.entries_lost()

    @property
    def witness_problem(self) -> str | None:
        """Why this machine cannot remember what is signed, None if it can (witness.py)."""
        return None if self._identity is None else self._identity.witness.problem

    def confirm_identity(self) -> None:
        """Lets own logs be appended to again.

        To be called when a peer has told the newest own entries it knows and they are held here,
        or when a person insists.
        """
        if self._identity is not None:
            self._identity.confirm()
        with self._database.write() as transaction:
            transaction.changes_wishes = True
            sharing.confirm_contested(transaction.db, self.author)

    def note_shared(self, shared: Mapping[LogKey, int]) -> None:
        """Remembers up to which entries others have own logs, or may have them."""
        with self._database.write() as transaction:
            for key, seq in shared.items():
                sharing.note_shared(transaction.db, key.log_id, seq)

    def signing_key(self) -> "SigningKey":
        """The author's secret key. Raises KeyFileMissing, KeyFileWrong or KeyFileExposed."""
        if self._signing_key is None:
            assert self._opened.folder is not None
            path = self._opened.folder / KEY_FILE
            self._signing_key = read_key_file(path, self.author)
        return self._signing_key

    def _key_to_sign(self) -> "SigningKey":
        reason = self.own_logs_read_only
        if reason is not None:
            raise reason
        return self.signing_key()

    # --- foreign entries and payloads -----------------------------------------------------------

    def put_entries(self, key: LogKey, entries: Sequence[NewEntry], *, source: str) -> PutResult:
        """Stores entries of one log whose signatures the caller has checked (bamboo.md Verified).

        In any order. Raises EntryRejected at the first that breaks a rule, after storing those
        below it. A fork is no error but in the result.
        """
        (result,) = self.put_many([(key, entries)], source=source)
        if result.rejected is not None:
            raise EntryRejected(key, result.rejected.seq, result.rejected.reason)
        return result

    def put_many(
        self,
        batches: Iterable[tuple[LogKey, Sequence[NewEntry]]],
        *,
        source: str,
        giver: bytes | None = None,
        undeletes: bool | None = None,
    ) -> list[PutResult]:
        """Like `put_entries` for several logs in one transaction.

        `rejected` and `over_quota` are in the results. `giver`: the peer who brought it, b"" if
        that is not known, whom quotas go for; None: they do not. `undeletes`: whether payloads are
        taken that were deleted here and are not fetched; by default if no peer has brought them.
        """
        if undeletes is None:
            undeletes = giver is None
        staged: list[Staged] = []
        try:
            ready = [(key, [self._ready(entry, staged) for entry in new]) for key, new in batches]
            with self._judged(giver) as (transaction, ledger):
                return [
                    self._put(transaction, ledger, key, new, source, undeletes=undeletes)
                    for key, new in ready
                ]
        finally:
            self._files.release(staged)

    def _put(
        self,
        transaction: Transaction,
        ledger: Ledger | None,
        key: LogKey,
        entries: Sequence[NewEntry | ReadyEntry],
        source: str,
        *,
        undeletes: bool,
    ) -> PutResult:
        own = key.author == self.author
        if ledger is None:
            return put_log(transaction, key, entries, source, own=own, undeletes=undeletes)
        admitted, over = ledger.admit(key, entries)
        result = put_log(transaction, key, admitted, source, own=own, undeletes=undeletes)
        ledger.grew(key, result.grown_bytes, (entry.payload for entry in admitted))
        return result if over is None else result._replace(over_quota=over)

    @contextmanager
    def _judged(self, giver: bytes | None) -> Iterator[tuple[Transaction, Ledger | None]]:
        """A write in which somebody brings something, and the books of it if quotas go for him."""
        quotas = None if giver is None else self._quotas
        if quotas is None or giver is None:
            with self._database.write() as transaction:
                yield transaction, None
            return
        with self._database.write() as transaction:
            ledger = quotas.begin(transaction, giver)
            yield transaction, ledger
        quotas.settle(ledger)

    def set_quotas(self, limits: QuotaLimits | None) -> None:
        """What a `giver` may bring from now on, in this process; None: anything."""
        opened = self._opened
        self._quotas = (
            None if limits is None else Quotas(limits, self.author, self._system, opened.folder)
        )

    def _ready(self, entry: NewEntry, staged: list[Staged]) -> NewEntry | ReadyEntry:
        payload = entry.payload
        if not isinstance(payload, bytes) or len(payload) <= INLINE_BYTES_MAX:
            return entry
        staged.append(self._files.stage(payload))
        return ReadyEntry(entry.seq, entry.encoded, entry.hash, staged[-1])

    def payload_sink(
        self,
        key: LogKey,
        seq: int,
        payload_bytes: int,
        payload_hash: bytes,
        *,
        source: str,
        giver: bytes | None = None,
    ) -> PayloadSink:
        """Receives a payload, also before its entry is stored, from where it was left last time.

        Raises PayloadBusy while another connection or process receives it, and StoreOverQuota where
        there is no room for the whole of one that goes to a file (`giver`: see `put_many`). Reads
        what is held already once through, to hash it.
        """
        claim = (key, seq, payload_hash)
        with self._lock:
            if claim in self._receiving:
                raise PayloadBusy(
                    "another connection is receiving this payload", f"{key}/{seq}", "try later"
                )
            self._receiving.add(claim)
        wanted = PayloadFile(b"", key, seq, payload_bytes, payload_hash)
        return PayloadSink(
            self._database,
            self._files,
            self._system,
            wanted,
            source,
            lambda: self._receiving.discard(claim),
            partial(self._judged, giver),
        )

    def complete_payload(
        self, key: LogKey, seq: int, payload: PayloadFile | bytes, *, giver: bytes | None = None
    ) -> bool:
        """Adds the payload to an entry that is held; False if it has its payload already.

        Raises PayloadUnavailable if the entry is not held, EntryRejected if the payload is not the
        one it names; one of the right hash and the wrong size also invalidates the log from there.
        PayloadDropped if what was received has been dropped since.
        StoreOverQuota if there is no room for a small one (`giver`: see `put_many`).
        """
        staged: list[Staged] = []
        given: PayloadFile | Staged | bytes = payload
        try:
            if isinstance(payload, bytes) and len(payload) > INLINE_BYTES_MAX:
                given = self._files.stage(payload)
                staged.append(given)
            (completed,) = self.complete_payloads([Completion(key, seq, given)], giver=giver)
        finally:
            self._files.release(staged)
        if completed.error is not None:
            raise completed.error
        return completed.added

    def complete_payloads(
        self,
        completions: Sequence[Completion],
        *,
        giver: bytes | None = None,
        undeletes: bool | None = None,
    ) -> list[Completed]:
        """Like `complete_payload` for many in one transaction; errors are in the outcomes.

        What sinks have sealed is among them still theirs, to be let go of afterwards. What was
        deleted here is PayloadDropped unless it is fetched again, or `undeletes`: see `put_many`.
        """
        if undeletes is None:
            undeletes = giver is None
        with self._judged(giver) as (transaction, ledger):
            return complete_all(transaction, ledger, completions, undeletes=undeletes)

    def discard_payload(self, payload: PayloadFile) -> None:
        """Forgets a finished payload whose entry will not be stored."""
        with self._database.write() as transaction:
            let_go(transaction.db, payload)
        self._files.tidy()

    # --- forks ----------------------------------------------------------------------------------

    def record_fork(
        self, key: LogKey, first: bytes, second: bytes, *, source: str = ""
    ) -> ForkProof:
        """Keeps a fork proof, of a log that need not be held; returns the earliest of the log.

        Checks both signatures. Raises NotAFork. Where the one half of it was signed here and has
        reached nobody, the own log is contested, and there is no fork (`contested`).
        """
        proof = proofs.check_fork(key, first, second)
        with self._database.write() as transaction:
            row = load_log(transaction.db, key) or create_log(transaction.db, key)
            if key.author == self.author and sharing.contest_by_proof(
                transaction.db, row, proof, source
            ):
                transaction.changes_wishes = True
                return proof
            if proofs.store_fork(transaction, row, proof):
                wants.settle(transaction, row)
                save_log(transaction.db, row)
            return proofs.load_fork(transaction.db, row) or proof

    # --- upkeep ---------------------------------------------------------------------------------

    def drop(self, key: AnyLog, first: int = 1, last: int = U64_MAX) -> Dropped:
        """Deletes payloads, and what has come of any; the entries stay (bamboo.md).

        Takes back what is wanted of the range (`want`). Works on a full disk.
        """
        key = self._log(key)
        check_numbers(first=first, last=last)
        first, last = max(first, 0), min(last, U64_MAX)
        return Dropping(self._opened, self._files, key, first, last).run()

    def keeper(self, target: AnyTarget | None = None) -> Keeper:
        """What deletes as the rules say, bit by bit: for whoever goes on doing so."""
        target = None if target is None else self._target(target)
        return Keeper(self._opened, self._files, target)

    def tidy(self, target: AnyTarget | None = None) -> list[Tidied]:
        """Deletes now what the rules say (`keep`), of all logs or those of a target; what it was.

        In many transactions, between which others have the store. Works on a full disk.
        """
        target = None if target is None else self._target(target)
        return tidy(self.keeper(target), self._system)

    def drop_stale(self, age_s: float) -> int:
        """Removes parts of payloads that nothing came of for so many seconds; how many."""
        return drop_stale(self._opened, self._files, age_s)

    def forget(self, target: AnyTarget) -> list[Forgotten]:
        """Removes a log, or all of an author's, with all that is remembered only of them.

        What there was of each, in order. Fork proofs stay. Raises LogFollowed if one of them is
        our own or followed, LogUnknown if nothing is held. Works on a full disk.
        """
        return self._forgetting().run(self._named(target))

    def plan_forgetting(self, target: AnyTarget) -> list[Forgotten]:
        """What `forget` would remove now. Raises as it does."""
        return self._forgetting().plan(self._named(target))

    def _forgetting(self) -> Forgetting:
        return Forgetting(self._opened, self._files)

    @property
    def copy_due(self) -> bool:
        """Whether `copy_log` has something to do; a hint, from any thread."""
        return self._database.copy_due

    def copy_log(self) -> None:
        """Copies what was committed from the write-ahead log into the database, beside whoever
        writes; else a commit does that now and then, and takes fifty times as long."""
        self._database.copy_log()

    def compact(self, progress: Callable[[CompactProgress], None] = lambda _: None) -> Compacted:
        """Gives back to the disk what the database has no more use for, in small steps.

        Others may use the store meanwhile. A database of an earlier version is written anew, once:
        that takes no node beside it, and room. Raises StoreLocked or StoreFull where it lacks them.
        """
        if not self.readonly:
            self._forgetting().finish()
        return Compacting(self._opened, self._files, os.getpid(), progress).run()

    def verify(
        self, key: AnyLog | None = None, *, collect: bool = False
    ) -> Iterator[Fault | LogVerdict]:
        """Rechecks everything, or one log: each fault, and a verdict at the end of each log.

        `collect` also removes payload files that belong to nothing. Payloads and link targets that
        are not held are no faults.
        """
        key = None if key is None else self._log(key)
        from .verify import Verifier

        return Verifier(self._opened, self._files).run(key, collect=collect)

    def backup(self, path: Path | str) -> BackedUp:
        """Writes a consistent copy to a new directory, also while others write.

        An earlier backup of this store is brought up to date: what is new is written, all or
        nothing. Own logs of the copy are read-only until `confirm_identity`. What fails leaves
        nothing new, and what was killed is replaced by the next backup there. Raises StoreExists if
        the directory holds anything else, also more of this store than it has itself, and
        StoreLocked while it is in use.
        """
        return write_backup(self._opened, self._files, Path(path))

    def lock_node(self) -> NodeLock:
        """The right to serve this store. Raises StoreLocked, naming the process that has it."""
        return NodeLock(self._opened.folder, self._system, os.getpid())

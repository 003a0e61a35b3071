"""Replicas of Bamboo logs on disk.

This layer keeps entries, payloads, fork proofs and what a node remembers, in one directory that
several processes may use at a time. It knows the rules of bamboo.md for what may be stored; that
signatures are right is checked by whoever brings foreign entries. It blocks, and knows nothing of
networks or event loops. docs/store.md states what is promised under which assumptions.
"""

from .errors import (
    EntryRejected,
    ExplainedError,
    KeyFileError,
    KeyFileExposed,
    KeyFileMissing,
    KeyFileWrong,
    LogClosed,
    LogMoved,
    NotAFork,
    NotAStore,
    OwnLogsReadOnly,
    PayloadBusy,
    PayloadDropped,
    PayloadMismatch,
    PayloadUnavailable,
    SQLiteTooOld,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreFailed,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
)
from .files import ArrivingFile, Staged
from .keyfile import read_key_file, write_key_file
from .modes import is_open_to_others
from .nodelock import NodeLock
from .opening import check_path
from .own import OWN_SOURCE
from .proofs import check_fork
from .reader import PayloadReader
from .records import (
    ALL,
    INLINE_BYTES_MAX,
    All,
    Appended,
    Arrived,
    Change,
    Contested,
    Dropped,
    EntryRejectedInfo,
    Fault,
    Follow,
    ForkProof,
    LogInfo,
    LogState,
    LogVerdict,
    NewEntry,
    PayloadFile,
    PayloadState,
    PutResult,
    Statistics,
    StoredEntry,
)
from .shortfall import Holding, Shortfall
from .sink import PayloadSink
from .store import Store
from .subscriptions import FULL, PolicyKind, Subscription, subscription_of
from .system import PayloadHandle, System, wall_clock_us

__all__ = [
    "ALL",
    "FULL",
    "INLINE_BYTES_MAX",
    "OWN_SOURCE",
    "All",
    "Appended",
    "Arrived",
    "ArrivingFile",
    "Change",
    "Contested",
    "Dropped",
    "EntryRejected",
    "EntryRejectedInfo",
    "ExplainedError",
    "Fault",
    "Follow",
    "ForkProof",
    "Holding",
    "KeyFileError",
    "KeyFileExposed",
    "KeyFileMissing",
    "KeyFileWrong",
    "LogClosed",
    "LogInfo",
    "LogMoved",
    "LogState",
    "LogVerdict",
    "NewEntry",
    "NodeLock",
    "NotAFork",
    "NotAStore",
    "OwnLogsReadOnly",
    "PayloadBusy",
    "PayloadDropped",
    "PayloadFile",
    "PayloadHandle",
    "PayloadMismatch",
    "PayloadReader",
    "PayloadSink",
    "PayloadState",
    "PayloadUnavailable",
    "PolicyKind",
    "PutResult",
    "SQLiteTooOld",
    "Shortfall",
    "Staged",
    "Statistics",
    "Store",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreExists",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "StoreTooNew",
    "StoredEntry",
    "Subscription",
    "System",
    "check_fork",
    "check_path",
    "is_open_to_others",
    "read_key_file",
    "subscription_of",
    "wall_clock_us",
    "write_key_file",
]

"""Appending to several own logs at once: one right to sign, one transaction, all or none."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from wire import LogKey

from .errors import LogClosed, LogMoved, StoreDamaged
from .own import Drafts
from .sharing import check_uncontested

if TYPE_CHECKING:
    from pathlib import Path

    from nacl.signing import SigningKey

    from .database import Database, Transaction
    from .files import Staged
    from .identity import Identity
    from .records import Appended

Batches = Sequence[tuple[int, Sequence["Staged"]]]
"""A log id, and what is to be its next payloads."""


def append_batches(
    database: "Database",
    identity: "Identity | None",
    signing_key: "Callable[[], SigningKey]",
    batches: Batches,
    expected_seqs: Sequence[int | None] | None,
    ending: Collection[int],
    where: "Path | str",
) -> list[list["Appended"]]:
    """Signs and stores the batches in order; one list of entries for each.

    A log may come more than once, and goes on where it was left; one of those in `ending` ends with
    its last batch. Raises as `Store.append` does; then nothing of any batch is stored, and `log` of
    the error says whose fault it is.
    """
    key = signing_key()
    expected = expected_seqs or [None] * len(batches)
    sign = partial(
        _sign, key=key, batches=batches, expected_seqs=expected, ending=ending, where=where
    )
    if identity is None:
        with database.write() as transaction:
            return sign(transaction)
    count = sum(len(payloads) for _, payloads in batches)
    with identity.signing() as signing:
        with database.write() as transaction:
            signing.begin(transaction, count)
            appended = sign(transaction)
            authored = transaction.authored
        # The last one signed has the largest ingest number of all: the witness knows this store
        # by it, as after a single append.
        signing.end(authored, appended[-1][-1])
    return appended


def _sign(
    transaction: "Transaction",
    *,
    key: "SigningKey",
    batches: Batches,
    expected_seqs: Sequence[int | None],
    ending: Collection[int],
    where: "Path | str",
) -> list[list["Appended"]]:
    author = bytes(key.verify_key)
    appended = []
    last = {log_id: place for place, (log_id, _) in enumerate(batches) if log_id in ending}
    # Once for all of them: to ask for each costs a tenth of what it costs to sign an entry of each.
    log_ids = dict.fromkeys(log_id for log_id, _ in batches)
    check_uncontested(transaction.db, author, log_ids, where)
    drafts = Drafts(transaction, key)
    drafts.read([*log_ids])
    for place, (log_id, payloads) in enumerate(batches):
        try:
            entries = drafts.append(
                log_id,
                payloads,
                end_of_log=last.get(log_id) == place,
                expected_seq=expected_seqs[place],
            )
        except (LogClosed, LogMoved, StoreDamaged) as error:
            error.log = LogKey(author, log_id)
            raise
        appended.append(entries)
    drafts.write()
    return appended

"""What a fork proof says of forks before it (bamboo.md, Verified). Pure."""

from wire import decode_entry, lipmaa


def differs_at(proof: tuple[bytes, bytes]) -> int | None:
    """The last entry of which the two in a proof name different versions; None if they name none.

    Then the log forked there or before, and what is in the proof is not the earliest fork. With the
    other side's version of that entry this is proved, without it nobody else believes it.
    """
    first, second = map(decode_entry, proof)
    if first.backlink != second.backlink:
        return first.seq - 1
    return lipmaa(first.seq) if first.lipmaalink != second.lipmaalink else None

"""The table of attacks, a file for each kind."""

from typing import Final

from siege.attack import Attack

from . import asking, bombs, crowds, entries, floods, key_updates, partials, quotas, signals, unread

KINDS: Final = (
    floods,
    key_updates,
    bombs,
    crowds,
    partials,
    entries,
    asking,
    signals,
    unread,
    quotas,
)
ATTACKS: Final[dict[str, Attack]] = {each.name: each for kind in KINDS for each in kind.ATTACKS}

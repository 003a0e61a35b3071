"""The key of a store's node, in a file beside it (spec sections 2.2, 4). Blocks."""

import os
import stat
from pathlib import Path
from typing import Final

from gateways.swarm.keys import SECRET_BYTES, Key, is_secret, overlay_of
from logstore import ExplainedError, StoreError, StoreExists, from_os_error, write_key_file

KEY_NAME: Final = "swarm.key"
_KEY_BYTES_MAX: Final = 200


class NotANode(ExplainedError):  # noqa: N818 - what it is
    """The store has no logs of a Swarm node, or none that can be made."""


def make_key(folder: Path) -> Key:
    """The key of a node, made if there is none. Raises NotANode, StoreError."""
    secret = os.urandom(SECRET_BYTES)
    while not is_secret(secret):  # one of 2^128 is none
        secret = os.urandom(SECRET_BYTES)
    try:
        write_key_file(folder / KEY_NAME, secret)
    except StoreExists:
        return read_key(folder)
    return Key(secret)


def read_key(folder: Path) -> Key:
    """The key of the node in a store. Raises NotANode, StoreError."""
    path = folder / KEY_NAME
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(_KEY_BYTES_MAX)
    except FileNotFoundError:
        raise NotANode("no Swarm node is in this store", str(folder), "`swarm init`") from None
    except OSError as error:
        raise from_os_error(error, path) from None
    if mode & 0o077:
        # As with the author's: who reads it is this node, to all of its peers.
        raise NotANode(
            f"other users may read the node's key (mode {mode:04o})", str(path), "chmod 600 it"
        )
    try:
        return Key(bytes.fromhex(text.decode("ascii").strip()))
    except ValueError:
        raise NotANode(
            "no key: 64 hexadecimal digits", str(path), "put the right one back"
        ) from None


def known_overlay(folder: Path | None) -> bytes | None:
    """The overlay of the node in a store; None where its key is not here, or not for this user."""
    if folder is None:
        return None
    try:
        return overlay_of(read_key(folder).public)
    except (NotANode, StoreError):
        return None

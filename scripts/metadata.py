"""What a build says of where the project is: its URLs, and where the README's links lead to.

Beside the page of a wheel there are no files, so there the links of the README are absolute. The
address is that of the git remote `origin`, whoever builds: a fork leads to the fork.
`BAMBOO_PEER_ADDRESS` comes first, for builds without git. Where neither says an address there are
no URLs, and the README is what it is in the checkout: a link to nowhere is worse than none. What is
built from a source distribution has the address that was found when that was made (hatchling reads
its PKG-INFO).

An installation without git beside it, such as a copied checkout, is like any other; nothing here
fails, since nobody can install what has no metadata.
"""

import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "BAMBOO_PEER_ADDRESS"
_LINK = re.compile(r"(!?)(\[[^\]]*\]\()([^)\s]+)(?=\))")
_SCP = re.compile(r"(?:[^@/\s]+@)?([^:/\s]+):(?!//)([^\s]+)")
_FENCE = "```"


class Metadata(MetadataHookInterface):
    """Called by hatchling for each build."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, object]) -> None:
        """Adds `readme` and, where there is an address, `urls`."""
        root = Path(self.root)
        text = (root / "README.md").read_text(encoding="utf-8")
        address = web_address(os.environ.get(VARIABLE) or _origin_of(root))
        if address is not None:
            text = with_absolute_links(text, address)
            metadata["urls"] = urls_at(address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def web_address(remote: str | None) -> str | None:
    """Where a browser finds a git remote; None for a folder, or what has no page for all.

    Without a user and a password: those of a remote are the builder's own.
    """
    if not remote:
        return None
    scp = _SCP.fullmatch(remote)
    if scp is not None:
        host, path = scp.groups()
    else:
        parts = urlsplit(remote)
        if parts.scheme not in {"https", "http", "ssh", "git"} or not parts.hostname:
            return None
        host, path = parts.hostname, parts.path
        if parts.scheme in {"https", "http"} and parts.port is not None:
            host = f"{host}:{parts.port}"
    path = path.strip("/").removesuffix(".git")
    return f"https://{host}/{path}" if path else None


def urls_at(address: str) -> dict[str, str]:
    """The project's pages, by the names that indexes know."""
    return {
        "Homepage": address,
        "Documentation": f"{address}/tree/HEAD/docs",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Source": address,
    }


def with_absolute_links(text: str, address: str) -> str:
    """Markdown whose links lead from anywhere to where they lead in the checkout."""

    def absolute(found: re.Match[str]) -> str:
        image, before, target = found.groups()
        if urlsplit(target).scheme:
            return found.group()
        if target.startswith("#"):
            return f"{image}{before}{address}{target}"
        return f"{image}{before}{address}/{'raw' if image else 'blob'}/HEAD/{target}"

    lines, is_code = [], False
    for line in text.split("\n"):
        is_code ^= line.startswith(_FENCE)
        lines.append(line if is_code else _LINK.sub(absolute, line))
    return "\n".join(lines)


def _origin_of(root: Path) -> str | None:
    """The remote of the checkout; None where this is none, or lies in somebody else's."""
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None
    return _git(root, "config", "--get", "remote.origin.url")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() or None

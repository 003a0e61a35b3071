"""Sees to it that there is a Java that Spark can use: finds one, or installs Debian's when root.

Where that does not work, one line says what to install, and everything but Spark goes on: the demo
leaves its query out, and tests that need Spark are skipped. With BAMBOO_JAVA=1 it is a failure.
"""

import os
import shutil
import subprocess
import sys

from analytics import JavaMissing, ensure_java

PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
"""The first one that there is: which of them Debian has depends on its release."""


def _apt_get(*arguments: str) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    # Only the line at the end is for the user: half of these are expected to find nothing.
    done = subprocess.run(
        ["apt-get", "-qq", *arguments], env=environment, capture_output=True, check=False
    )
    return done.returncode == 0


def install() -> bool:
    """Installs Java with apt-get; False where that cannot be done."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print("installing Java, which Spark needs", file=sys.stderr)
    if not _apt_get("update"):
        # The lists of packages that are there may do.
        print("the lists of packages cannot be brought up to date", file=sys.stderr)
    return any(
        _apt_get("install", "-y", "--no-install-recommends", package) for package in PACKAGES
    )


def main() -> int:
    """Returns the exit status."""
    try:
        ensure_java()
    except JavaMissing:
        install()
    try:
        ensure_java()
    except JavaMissing as missing:
        print(f"Java: none, all but Spark goes on: {missing}", file=sys.stderr)
        return int(os.environ.get("BAMBOO_JAVA") == "1")
    return 0


if __name__ == "__main__":
    sys.exit(main())

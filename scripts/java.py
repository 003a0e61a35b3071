"""Sees to it that there is a Java that Spark can use: finds one, or installs Debian's when root.

Ends with status 1 and a line that says what to install where that does not work.
"""

import os
import shutil
import subprocess
import sys

from analytics import JavaMissing, ensure_java

PACKAGE = "openjdk-17-jre-headless"


def install() -> bool:
    """Installs Java with apt-get; False where that cannot be done."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    steps = (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE],
    )
    print(f"installing {PACKAGE}, which Spark needs", file=sys.stderr)
    return all(
        subprocess.run(step, env=environment, stdout=sys.stderr, check=False).returncode == 0
        for step in steps
    )


def main() -> int:
    """Returns the exit status."""
    try:
        ensure_java()
    except JavaMissing as missing:
        if not install():
            print(missing, file=sys.stderr)
            return 1
        ensure_java()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a worker of Spark has, asked on its machine: a program of its own, sent as text.

It runs under whatever Python 3 is there, so it has no syntax of later ones outside of annotations,
and imports nothing at its top that may be missing. It prints one line of JSON, and never a variable
of the environment.
"""

import json
import os
import socket
import sys
from pathlib import Path


def answer(asked: "dict[str, object]") -> "dict[str, object]":
    """What there is of what is asked for: `version`, `libraries`, `packages`, `inputs`, `out`.

    `inputs`: of each directory, a file that has to be readable.
    """
    version = "{}.{}".format(*sys.version_info[:2])
    lacks = [fault for fault in map(import_fault, asked["libraries"]) if fault]  # type: ignore[call-overload]
    native = False
    if version == asked["version"] and not lacks:
        files = Path(str(asked["files"]))
        sys.path[:0] = [str(files), str(files / str(asked["packages"]))]
        fault = import_fault("wire")
        lacks += [fault] if fault else []
        native = not lacks and sys.modules["wire"].NATIVE is not None
    return {
        "host": socket.gethostname(),
        "worker": str(Path.cwd()),
        "python": sys.executable,
        "version": version,
        "lacks": lacks,
        "native": native,
        "unseen": [root for root, name in asked["inputs"].items() if not os.access(name, os.R_OK)],  # type: ignore[attr-defined]
        "out": out_fault(str(asked["out"])) if asked["out"] else None,
    }


def import_fault(module: str) -> "list[str] | None":
    """The module and why it cannot be imported, None if it can."""
    try:
        __import__(module)
    except Exception as error:  # noqa: BLE001 - what is broken is as bad as what is missing
        return [module, f"{type(error).__name__}: {error}"]
    return None


def out_fault(probe: str) -> "str | None":
    """Why results cannot be written beside a file that the driver has put there, None if they can.

    Leaves a file for the driver to find.
    """
    if not Path(probe).exists():
        return "does not see"
    try:
        Path(f"{probe}-{os.getpid()}").write_text(socket.gethostname())
    except OSError:
        return "may not write to"
    return None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(json.loads(sys.argv[1]))) + "\n")

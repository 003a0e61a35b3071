"""Builds the native core, and installs it for the Python that runs this.

    python scripts/native.py             # builds it where cargo is, says in one line where not
    python scripts/native.py --lint      # checks its formatting and cargo clippy's rules
    python scripts/native.py --record    # after a change of a version: writes native/checksums

The core is optional, so that a build that is not possible is told in one line and is no failure,
except with BAMBOO_NATIVE=1. No program of a crate runs before the checksums of all are right.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from pathlib import Path

CRATE = Path(__file__).resolve().parents[1] / "native"
LOCK = CRATE / "Cargo.lock"
CHECKSUMS = CRATE / "checksums"
LIBRARIES = {"darwin": "libbamboo_native.dylib"}
INSTALLED = "bamboo_native.abi3.so"
# Where crates cannot be had, that should be known soon.
PATIENCE = {"CARGO_NET_RETRY": "1", "CARGO_HTTP_TIMEOUT": "20"}


class CannotBuildError(Exception):
    """Why there is no native core, in a few words."""


class MissingError(CannotBuildError):
    """A program or a crate that is needed is not to be had: no fault of the sources."""


def cargo(*arguments: str) -> str:
    """Runs cargo in the crate, and returns what it printed."""
    program = shutil.which("cargo")
    if program is None:
        raise MissingError("cargo is missing (Rust 1.88 or newer has it)")
    environment = PATIENCE | os.environ | {"PYO3_PYTHON": sys.executable}
    done = subprocess.run(
        [program, *arguments],
        cwd=CRATE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotBuildError(f"cargo {arguments[0]}: {fault_in(done.stderr)}")
    return done.stdout


def fault_in(output: str) -> str:
    """The line that says most: the last cause of the last error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error")]
    causes = lines[lines.index("Caused by:") + 1 :] if "Caused by:" in lines else []
    told = [*errors[:1], *causes[-1:]]
    return "; ".join(told) or "it failed without a word"


def locked() -> list[str]:
    """A line for each crate as cargo has locked it: its SHA-256, name and version."""
    packages = tomllib.loads(LOCK.read_text())["package"]
    return [
        f"{each['checksum']}  {each['name']}-{each['version']}"
        for each in packages
        if "source" in each
    ]


def fetch() -> None:
    """Brings the crates here, all of the versions that Cargo.toml names."""
    try:
        cargo("fetch")
    except CannotBuildError as error:
        raise MissingError(str(error)) from error


def need(tool: str) -> None:
    """MissingError if cargo, which may come without it, has no such tool."""
    try:
        cargo(tool, "--version")
    except CannotBuildError as error:
        raise MissingError(str(error)) from error


def check_checksums() -> None:
    """Compares cargo's lock file, by which it has checked all bytes, with `checksums`."""
    wanted = CHECKSUMS.read_text().splitlines()
    strange = sorted(set(locked()) - set(wanted))
    if strange:
        names = ", ".join(line.split()[1] for line in strange)
        raise CannotBuildError(f"not the crates of native/checksums: {names}")


def build() -> Path:
    """Compiles, and returns the library."""
    # macOS finds Python's symbols in the program that loads the library.
    late = ["-C", "link-arg=-undefined", "-C", "link-arg=dynamic_lookup"]
    cargo(
        "rustc",
        "--release",
        "--locked",
        "--offline",
        "--lib",
        "--",
        *late * (sys.platform == "darwin"),
    )
    return CRATE / "target/release" / LIBRARIES.get(sys.platform, "libbamboo_native.so")


def install(library: Path) -> Path:
    """Puts the library where Python finds it; processes that run keep the one they have."""
    folder = Path(sysconfig.get_path("platlib"))
    new = folder / f".{INSTALLED}.new"
    shutil.copyfile(library, new)
    return new.replace(folder / INSTALLED)


def make() -> str:
    """Builds and installs; returns what to tell."""
    started = time.monotonic()
    fetch()
    check_checksums()
    installed = install(build())
    took_s = time.monotonic() - started
    return f"built in {took_s:.0f} s, {installed.stat().st_size // 1000} KB"


def lint() -> str:
    """Checks the sources; returns what to tell."""
    need("fmt")
    cargo("fmt", "--check")
    need("clippy")
    fetch()
    check_checksums()
    cargo("clippy", "--release", "--locked", "--offline", "--", "-D", "warnings")
    return "formatted, and nothing for clippy to say"


def record() -> str:
    """Writes `checksums`; returns what to tell."""
    fetch()
    lines = locked()
    CHECKSUMS.write_text("".join(f"{line}\n" for line in lines))
    return f"the checksums of {len(lines)} crates are written"


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="builds the native core")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--lint", action="store_const", dest="step", const=lint)
    steps.add_argument("--record", action="store_const", dest="step", const=record)
    step = parser.parse_args().step or make
    demanded = step is record or os.environ.get("BAMBOO_NATIVE") == "1"
    if step is make and os.environ.get("BAMBOO_NATIVE") == "0":
        print("native core: not built, BAMBOO_NATIVE=0")
        return 0
    try:
        print(f"native core: {step()}")
    except CannotBuildError as error:
        if step is lint:
            missing = isinstance(error, MissingError)
            what = "not checked" if missing else "faulty"
            print(f"native core: {what}, {error}", file=sys.stderr)
            return 0 if missing else 1
        what = "failed" if demanded else "not built, Python does its work"
        print(f"native core: {what}: {error}", file=sys.stderr)
        return 1 if demanded else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

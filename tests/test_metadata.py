"""What a build says of where the project is: URLs, and links that lead there from anywhere."""

import re
import subprocess
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from scripts.metadata import VARIABLE, web_address, with_absolute_links

TOP = Path(__file__).resolve().parents[1]
AT = "https://example.org/some/peer"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://example.org/some/peer.git", AT),
        ("https://somebody:secret@example.org/some/peer.git", AT),
        ("https://example.org:8443/some/peer/", "https://example.org:8443/some/peer"),
        ("git@example.org:some/peer.git", AT),
        ("example.org:some/peer", AT),
        ("ssh://git@example.org:2222/some/peer.git", AT),
        ("git://example.org/some/peer.git", AT),
        ("/home/somebody/peer", None),
        ("../peer.git", None),
        ("file:///srv/peer.git", None),
        ("https://example.org/", None),
        ("", None),
        (None, None),
    ],
)
def test_a_remote_has_the_address_that_a_browser_takes(
    remote: str | None, address: str | None
) -> None:
    assert web_address(remote) == address


def test_links_lead_where_they_did_and_code_is_left_alone() -> None:
    text = (
        "See [a](docs/a.md#b), [c](#d), ![e](docs/e.png) and [f](https://f.org/).\n"
        "```console\n$ echo [a](b)\n```\n[g](LICENSE)"
    )
    assert with_absolute_links(text, AT) == (
        f"See [a]({AT}/blob/HEAD/docs/a.md#b), [c]({AT}#d), ![e]({AT}/raw/HEAD/docs/e.png)"
        " and [f](https://f.org/).\n"
        f"```console\n$ echo [a](b)\n```\n[g]({AT}/blob/HEAD/LICENSE)"
    )


def metadata_of(wheel: str) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def relative_links(text: str) -> list[str]:
    return [each for each in re.findall(r"\]\(([^)]+)\)", text) if "://" not in each]


def test_a_wheel_has_urls_and_no_relative_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is built, elsewhere, from a source distribution."""
    monkeypatch.setenv(VARIABLE, "https://example.org/some/peer.git")
    [source] = SdistBuilder(str(TOP)).build(directory=str(tmp_path), versions=["standard"])
    monkeypatch.delenv(VARIABLE)
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = source.removesuffix(".tar.gz")
    [wheel] = WheelBuilder(folder).build(directory=str(tmp_path), versions=["standard"])
    found = metadata_of(wheel)
    urls = dict(each.split(", ") for each in found.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Changelog", "Issues", "Source"} == urls.keys()
    assert all(url.startswith(AT) for url in urls.values())
    text = found.get_payload()
    assert isinstance(text, str)
    assert "](https://example.org/some/peer/blob/HEAD/docs/tutorial.md)" in text
    assert relative_links(text) == []


def test_without_an_address_there_are_no_urls(tmp_path: Path) -> None:
    """As in a folder that is no checkout, or lies in another one's."""
    for name in ("README.md", "LICENSE", "pyproject.toml"):
        (tmp_path / "peer").mkdir(exist_ok=True)
        (tmp_path / "peer" / name).write_bytes((TOP / name).read_bytes())
    (tmp_path / "peer" / "scripts").mkdir()
    script = Path("scripts", "metadata.py")
    (tmp_path / "peer" / script).write_bytes((TOP / script).read_bytes())
    (tmp_path / "peer" / "bymux").mkdir()
    (tmp_path / "peer" / "bymux" / "__init__.py").touch()
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "remote", "add", "origin", "https://example.org/other.git"], check=True)
    build = WheelBuilder(str(tmp_path / "peer")).build
    [wheel] = build(directory=str(tmp_path), versions=["standard"])
    found = metadata_of(wheel)
    assert found.get_all("Project-URL") is None
    assert found.get_payload() == (TOP / "README.md").read_text()


def test_every_link_of_the_readme_leads_to_something_here() -> None:
    for target in relative_links((TOP / "README.md").read_text()):
        path = target.partition("#")[0]
        assert not path or (TOP / path).exists(), target

"""The page as people see it, in Chromium: both widths, light and dark, live, and by keyboard.

`make screenshots` has the pictures of docs/ made by the same test.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from logstore import Store
from tests.cli_online.running import run, serving, until
from tests.local_api.browser import CONTRASTS, SCHEMES, WIDTHS, a_browser, opened
from tests.logstore.authors import AuthorLog

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = os.environ.get("BAMBOO_PEER_SCREENSHOTS")
LARGE = bytes(200_000)


class Site(NamedTuple):
    """A node with a page, and what it holds."""

    store: Path
    url: str
    forked: AuthorLog
    healthy: AuthorLog


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with a_browser() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Ben's node, to which Amy's is connected; of one log he knows that it is forked."""
    folder = tmp_path_factory.mktemp("page")
    amy, ben = folder / "amy", folder / "ben"
    for folder in (amy, ben):
        run(folder, "init")
    healthy, one, other = AuthorLog(1), AuthorLog(2), AuthorLog(2)
    for seq in range(1, 41):
        healthy.add(seq, b"payload %d" % seq)
        one.add(seq, b"one")
        other.add(seq, b"one" if seq < 30 else b"other")
    with Store.open(ben) as store:
        store.put_entries(healthy.key, list(healthy.entries.values()), source="a")
        store.put_entries(one.key, list(one.entries.values()), source="a")
        store.put_entries(one.key, [other.entries[30]], source="b")
        store.follow(one.key)
        store.follow(healthy.key)
        store.set_name("the-forked-one", one.key)
    run(amy, "append", "--lines", stdin=b"".join(b"%d\n" % n for n in range(50)))
    author = run(amy, "whoami").stdout.strip()
    run(ben, "follow", author)
    with serving(amy, "--listen", "127.0.0.1:0", "--json") as giving:
        address = giving.event()["address"]
        arguments = ("--no-listen", "--connect", str(address), "--page", "127.0.0.1:0", "--json")
        with serving(ben, *arguments) as node:
            while (event := node.event())["event"] != "page":
                pass
            until(lambda: '"entries": 50' in run(ben, "logs", author, "--json").stdout)
            yield Site(ben, str(event["address"]), one, healthy)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_fits_the_window_and_can_be_read(
    browser: "Browser", site: Site, width: int, scheme: str
) -> None:
    with opened(browser, site.url, width, color_scheme=scheme, reduced_motion="reduce") as page:
        page.wait_for_selector("#peers svg")
        page.wait_for_selector('[data-log][data-state="forked"]')
        sideways = "() => document.documentElement.scrollWidth - window.innerWidth"
        assert page.evaluate(sideways) <= 0
        assert page.evaluate(CONTRASTS) == []
        for element in ("verdict", "alarms", "peers", "logs", "transfers", "events"):
            assert page.locator(f"#{element}").count() == 1
        # A fork is red, and says so to who sees no red.
        row = page.locator(f'[data-log="{site.forked.key}"]')
        assert "forked" in row.inner_text()
        assert "fork" in page.locator("#alarms").inner_text()
        assert page.locator("#peers svg > title").count() == 1
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"page-{width}-{scheme}.png", full_page=True)


def test_it_is_complete_without_its_script(browser: "Browser", site: Site) -> None:
    with opened(browser, site.url, java_script_enabled=False) as page:
        assert page.locator(f'[data-log="{site.healthy.key}"]').count() == 1
        assert page.locator("#verdict").inner_text()
        link = page.locator(f'[data-log="{site.forked.key}"] .why a')
        assert str(link.get_attribute("href")).startswith("/v1/why?log=")


def test_it_shows_what_comes_without_being_loaded_again(browser: "Browser", site: Site) -> None:
    with opened(browser, site.url) as page:
        mark = "() => { window.notLoadedAgain = true; }"
        page.evaluate(mark)
        own = f'[data-log="{run(site.store, "whoami").stdout.strip()}/0"]'
        before = page.locator(own).count()
        run(site.store, "append", stdin=b"something new")
        page.wait_for_selector(own)
        run(site.store, "append", stdin=LARGE)
        page.wait_for_function(
            "(own) => /\\b2 (of 2 )?entries/.test(document.querySelector(own).textContent)", arg=own
        )
        assert before == 0
        assert page.evaluate("() => window.notLoadedAgain") is True
        run(site.store, "forks", "dismiss", str(site.forked.key))
        page.wait_for_function("() => !document.getElementById('alarms').textContent.trim()")
        run(site.store, "forks", "dismiss", str(site.forked.key), "--undo")
        page.wait_for_function("() => document.getElementById('alarms').textContent.trim()")


def test_all_of_it_is_reached_by_keyboard(browser: "Browser", site: Site) -> None:
    with opened(browser, site.url) as page:
        page.wait_for_selector("[data-log]")
        focus = """() => {
          const at = document.activeElement;
          return at.id || at.closest("[data-log]")?.dataset.log || "";
        }"""
        reached: list[str] = []
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.append(page.evaluate(focus))
            if reached[-1] == str(site.forked.key):
                break
        assert "search" in reached
        assert reached[-1] == str(site.forked.key)
        page.keyboard.press("Enter")
        page.wait_for_function(
            "(log) => /signed entry 30 twice/.test("
            "document.querySelector(`[data-log='${log}'] .why`).textContent)",
            arg=str(site.forked.key),
        )
        page.locator("#search").fill("the-forked")
        rows = page.locator("[data-log]:not([hidden])")
        assert rows.count() == 1


def test_what_others_have_named_runs_no_script(browser: "Browser", site: Site) -> None:
    """The policy lets no script in but the page's own."""
    with opened(browser, site.url, faults_expected=1) as page:
        answer = page.request.get(site.url)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        added = """() => {
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
          return window.ran === true;
        }"""
        assert page.evaluate(added) is False

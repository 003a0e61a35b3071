"""A real browser on the page of a node that runs: what tests of the page share.

The browser is Chromium: Playwright's own, or one that the system has. Where there is neither, the
tests are skipped, and say so.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = {1280: 900, 480: 900}
"""Widths of windows, and their heights."""
SCHEMES = ("light", "dark")


@contextmanager
def a_browser() -> Iterator["Browser"]:
    """Skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        own = Path(driver.chromium.executable_path)
        path = str(own) if own.exists() else next(filter(None, map(shutil.which, NAMES)), None)
        if path is None:
            pytest.skip("there is no Chromium on this machine")
        # Root, as in containers, has no sandbox of Chromium's.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: "Browser",
    url: str,
    width: int = 1280,
    *,
    faults_expected: int = 0,
    **options: Any,  # noqa: ANN401 - Playwright's
) -> Iterator["Page"]:
    """The page in a window of its own; what its console says is wrong fails the test."""
    context = browser.new_context(viewport={"width": width, "height": WIDTHS[width]}, **options)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    try:
        page.goto(url)
        yield page
        assert len(faults) == faults_expected, faults
    finally:
        context.close()


CONTRASTS = """() => {
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => {
      c /= 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ink = numbers(element.closest("svg") ? style.fill : style.color).slice(0, 3);
    const [high, low] = [luminance(ink), luminance(behind(element))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.push(`${element.outerHTML.slice(0, 80)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
"""Texts whose contrast is below 4.5:1 (WCAG 2.1, 1.4.3)."""

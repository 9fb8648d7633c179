"""One server and one browser for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright import sync_api as playwright

from tests.page.browser.server import Shop, chromium, launch, seeded_shop


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with seeded_shop(tmp_path_factory.mktemp("shop")) as shop:
        yield shop


@pytest.fixture(scope="package")
def browser() -> Iterator[playwright.Browser]:
    # not for the whole session: while it is there, this thread has a running loop
    if chromium() is None:
        pytest.skip("no Chromium is installed, such as Debian's package chromium")
    with playwright.sync_playwright() as driver, launch(driver) as browser:
        yield browser


class Look:
    """A page of a browser, and what a healthy one never has: errors, dialogs, requests to other hosts."""

    def __init__(self, browser: playwright.Browser, shop: Shop, **options: object) -> None:
        settings = {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"} | options
        self.context = browser.new_context(**settings)  # type: ignore[arg-type]
        self.context.set_default_timeout(90_000)
        self.page = self.context.new_page()
        self.shop = shop
        self.wrong: list[str] = []
        self.page.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._requested)

    def _requested(self, request: playwright.Request) -> None:
        if urlsplit(request.url).netloc != self.shop.host and not request.url.startswith("data:"):
            self.wrong.append(f"request to {request.url}")

    def go(self, path: str, **parameters: str) -> playwright.Page:
        answer = self.page.goto(self.shop.address(path, **parameters))
        assert answer is not None
        assert answer.ok, (answer.status, answer.text())
        return self.page


@pytest.fixture
def look(browser: playwright.Browser, shop: Shop) -> Iterator[Look]:
    found = Look(browser, shop)
    yield found
    found.context.close()
    assert found.wrong == []

"""The web page, in a headless browser, against a real server."""

import shutil
import time
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
PAGE = Path(__file__).parents[2] / "serve" / "page"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page_of(browser):
    """Open the server's page; what the browser complains of is an error of the test."""
    contexts, complaints = [], []

    def open_page(url, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # An observation that does not fit is a 400, which the browser notes as well.
    assert [one for one in complaints if "status of 400" not in one] == []


def wait_for(page, condition, seconds=20.0):
    """Playwright's own waiting evaluates text, which the page's policy rightly forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def test_policies_are_listed_and_an_observation_is_answered(server, page_of):
    page = page_of(server.url, viewport={"width": 1200, "height": 900})
    page.wait_for_selector("#versions tr")
    rows = page.inner_text("#versions")
    assert "cartpole" in rows
    assert "reacher" in rows
    assert "acts" in rows
    page.select_option("#policy", "cartpole")
    page.fill("#observation", '{"position": 0, "velocity": 0, "angle": 1, "angular velocity": 0}')
    page.keyboard.press("Tab")
    page.click("#ask button")
    page.wait_for_selector("#answer b")
    assert page.inner_text("#answer b") == "1 (right)"
    assert "0.881" in page.inner_text("#answer")  # softmax of -1 and 1
    page.fill("#observation", "[1, 2]")
    page.click("#ask button")
    page.wait_for_selector("#answer .bad")
    assert "shape [4]" in page.inner_text("#answer")


def test_cartpole_plays_through_the_server_and_is_counted(server, page_of):
    page = page_of(server.url)
    page.wait_for_selector("#versions tr")
    page.select_option("#policy", "cartpole")
    page.focus("#run")
    page.keyboard.press("Enter")
    wait_for(page, "parseInt(document.getElementById('score').textContent) > 15")
    page.keyboard.press("Enter")
    wait_for(page, "document.querySelectorAll('#features tr').length === 4")
    wait_for(page, "document.querySelectorAll('#actions rect').length === 2")
    wait_for(page, "document.querySelectorAll('#rate polyline').length === 1")


def test_the_page_speaks_chinese_and_keeps_to_narrow_screens(server, page_of):
    page = page_of(server.url, viewport={"width": 360, "height": 800}, locale="zh-CN", color_scheme="dark")
    page.wait_for_selector("#versions tr")
    assert page.inner_text("#policies-title") == "策略"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.click("#language")
    assert page.inner_text("#policies-title") == "Policies"


def test_both_languages_have_every_word(page_of, server):
    page = page_of(server.url)
    missing = page.evaluate(
        """async () => {
          const { WORDS } = await import("/page/words.js");
          const [en, zh] = [WORDS.en, WORDS.zh].map(Object.keys);
          return [...en.filter((key) => !zh.includes(key)), ...zh.filter((key) => !en.includes(key))];
        }"""
    )
    assert missing == []


def test_the_api_page_lists_every_route(server, page_of):
    page = page_of(server.url + "/docs")
    page.wait_for_selector("#routes section")
    text = page.inner_text("#routes")
    assert "POST /v1/policies/{name}/act" in text
    assert "POST /v2/models/{name}/infer" in text


def test_nothing_is_fetched_from_anywhere_else():
    for file in PAGE.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, file
        assert "https://" not in text, file
        assert "//cdn" not in text, file

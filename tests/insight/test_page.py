"""The page in a real browser, served by the real command: pointer, keyboard, networks, photos, errors."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")]


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    y, x = np.mgrid[:200, :300]
    pixels = np.stack([127 + 100 * np.sin(x / (9 + c)) * np.cos(y / 14) for c in range(3)], 2)
    path = tmp_path_factory.mktemp("photos") / "waves.png"
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def address(photo):
    command = [
        sys.executable,
        "-m",
        "acda",
        "explore",
        str(photo),
        "--model",
        "fresh layer",
        "--port",
        "0",
        "--no-browser",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield re.match(r"(http://127.0.0.1:\d+/)", process.stdout.readline()).group(1)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser():
    with pytest.importorskip("playwright.sync_api").sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, address):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.strange = []
    page.on("console", lambda message: message.type == "error" and page.strange.append(message.text))
    page.on("pageerror", lambda error: page.strange.append(str(error)))
    own = (address, f"blob:{address}")
    page.on("request", lambda request: request.url.startswith(own) or page.strange.append(request.url))
    page.goto(address)
    wait_until(page, "document.body.dataset.shown > 0")
    yield page
    page.close()


def wait_until(page, expression):
    """Playwright's own waiting needs eval, which the page's security policy forbids."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise TimeoutError(expression)


def status(page):
    return page.locator("#status").inner_text()


def wait_for_another(page, action):
    before = int(page.evaluate("document.body.dataset.shown"))
    action()
    wait_until(page, f"document.body.dataset.shown > {before}")


def pixels_of(page, selector):
    return page.evaluate(f"document.querySelector('{selector}').toDataURL()")


def test_the_pointer_shows_the_filter_of_its_place(page):
    assert page.locator("#atoms canvas").count() == 6
    before = pixels_of(page, "#atoms canvas"), pixels_of(page, "#filter")
    box = page.locator("#photo").bounding_box()
    wait_for_another(page, lambda: page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4))
    assert "x 75, y 50 of 300×200; place 75, 50" in status(page)
    assert (pixels_of(page, "#atoms canvas"), pixels_of(page, "#filter")) != before
    weights = [float(text.split()[0]) for text in page.locator(".bar span:last-child").all_inner_texts()]
    assert sum(weights) == pytest.approx(100, abs=0.3)
    assert "receptive field:" in page.locator("#field").inner_text()
    assert page.strange == []


def test_the_keyboard_moves_too(page):
    page.locator("#stage").focus()
    wait_for_another(page, lambda: page.keyboard.press("ArrowRight"))
    assert "place 151, 100" in status(page)
    wait_for_another(page, lambda: page.keyboard.press("Shift+ArrowUp"))
    assert "place 151, 90" in status(page)
    for _ in range(30):
        page.keyboard.press("Shift+ArrowLeft")
    wait_until(page, "document.getElementById('status').textContent.includes('place 0, 90')")


def test_channels_maps_and_networks(page):
    before = pixels_of(page, "#filter")
    wait_for_another(page, lambda: page.locator("#out").fill("5"))
    assert pixels_of(page, "#filter") != before
    page.locator("#kind").select_option("field")
    wait_until(page, "document.getElementById('map').naturalWidth === 300")
    low, high = (float(page.locator(f"#range span >> nth={i}").inner_text()) for i in (0, 1))
    assert 0 < low < high < 4.3
    wait_for_another(page, lambda: page.locator("#model").select_option("lenet_acda"))
    assert page.locator("#layer option").all_inner_texts() == ["features.0 (5×5)", "features.3 (5×5)"]
    wait_for_another(page, lambda: page.locator("#layer").select_option("features.3"))
    assert "of 10×10" in status(page)
    assert page.strange == []


def test_ones_own_photo_and_what_is_no_photo(page, tmp_path):
    Image.new("RGB", (90, 70), (10, 200, 30)).save(tmp_path / "own.png")
    wait_for_another(page, lambda: page.locator("#file").set_input_files(tmp_path / "own.png"))
    assert "of 90×70" in status(page)
    (tmp_path / "text.png").write_text("not an image")
    page.locator("#file").set_input_files(tmp_path / "text.png")
    wait_until(page, "document.getElementById('wrong').textContent")
    assert "cannot be read as an image" in page.locator("#wrong").inner_text()
    box = page.locator("#photo").bounding_box()
    wait_for_another(page, lambda: page.mouse.move(box["x"] + 5, box["y"] + 5))
    assert "of 90×70" in status(page), "what was there before still works"
    assert "cannot be read" in page.locator("#wrong").inner_text(), "the pointer does not wipe it away"
    wait_for_another(page, lambda: page.locator("#model").select_option("lenet_acda"))
    assert "of 32×32" in status(page), "and it is the photo that the next network looks at"
    assert page.locator("#wrong").inner_text() == ""


def test_the_place_stays_when_the_network_changes_and_when_the_look_is_gone(page, address):
    box = page.locator("#photo").bounding_box()
    wait_for_another(page, lambda: page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4))
    wait_for_another(page, lambda: page.locator("#model").select_option("lenet_acda"))
    assert "x 8, y 8 of 32×32" in status(page)
    wait_for_another(page, lambda: page.locator("#model").select_option("fresh layer"))
    assert "x 75, y 50 of 300×200" in status(page)
    for _ in range(6):  # as another tab may
        answer = page.request.post(f"{address}api/look", params={"model": "fresh layer"})
        assert answer.ok
    wait_for_another(page, lambda: page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 4))
    assert "x 150, y 50 of 300×200" in status(page)
    assert page.locator("#wrong").inner_text() == ""


def test_of_channels_what_is_shown_is_what_there_is(page):
    wait_for_another(page, lambda: page.locator("#out").fill("999"))
    page.locator("#out").blur()
    assert page.locator("#out").input_value() == page.locator("#out").get_attribute("max")


def test_a_small_photo_keeps_its_shape_in_a_low_window(page, tmp_path):
    page.set_viewport_size({"width": 1280, "height": 500})
    Image.new("RGB", (60, 240)).save(tmp_path / "tall.png")
    page.locator("#file").set_input_files(tmp_path / "tall.png")
    wait_until(page, "document.getElementById('status').textContent.includes('of 60×240')")
    box = page.locator("#photo").bounding_box()
    assert box["height"] / box["width"] == pytest.approx(4, rel=0.02)
    assert box["height"] < 500


def test_the_photo_that_was_dropped_last_is_looked_at_whatever_comes_between(page, tmp_path):
    Image.new("RGB", (90, 70)).save(tmp_path / "own.png")
    page.locator("#file").set_input_files(tmp_path / "own.png")
    page.locator("#model").select_option("restorer")
    wait_until(page, "document.getElementById('layer').options.length === 8")
    wait_until(page, "document.getElementById('status').textContent.includes('of 90×70')")

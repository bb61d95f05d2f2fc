"""The page in a real browser: Chromium, as Debian has it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlparse

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright
from videos import video
from viewed import EVIL, Served, write_numbers

import fastloader as fl
from fastloader import ops

TEN_MILLION = 10_000_000
PATIENCE = 90_000
"""Milliseconds that a busy machine may take."""
PIPELINES = {"image": [ops.RandomResizedCrop(48), ops.HorizontalFlip()], "boxes": [ops.Follow("image")]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests; each gets a window of its own."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options, timeout=PATIENCE)
        yield chromium
        chromium.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1200, "height": 800}, color_scheme="light")
    made.grant_permissions(["clipboard-read", "clipboard-write"])
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that asks nobody but the server, opens no dialog and has no errors."""
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    made.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    made.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    made.on("request", lambda request: wrong.append(request.url) if _is_elsewhere(request.url) else None)
    made.set_default_timeout(PATIENCE)
    yield made
    assert [one for one in wrong if "status of 4" not in one] == []


def _is_elsewhere(url: str) -> bool:
    return urlparse(url).hostname not in ("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(write_numbers(tmp_path_factory.mktemp("many") / "many.fld", TEN_MILLION)) as served:
        yield served


def opened(page: Page, served: Served) -> None:
    """The grid, with its samples."""
    page.goto(served.url)
    page.wait_for_function("() => document.querySelector('.card .name')?.textContent")


def filled(page: Page, low: float = 0, high: float = TEN_MILLION) -> list[int]:
    """The samples in sight, once all cards are filled, with neighbours, and the first is within bounds."""
    found = page.wait_for_function(
        """([low, high]) => {
            const names = [...document.querySelectorAll('.card:not([hidden]) .name')].map(one => one.textContent);
            const numbers = names.map(name => Number(name.replace(/[#,]/g, ''))).sort((one, other) => one - other);
            const all = numbers.length && names.every(Boolean) && numbers.every((one, i) => one === numbers[0] + i);
            return all && low <= numbers[0] && numbers[0] <= high ? numbers : null;
        }""",
        arg=[low, high],
    )
    return [int(number) for number in found.json_value()]


def handed_over(page: Page, there: Callable[[], object]) -> None:
    """Waits for what the browser tells while it is listened to."""
    for _ in range(PATIENCE // 10):
        if there():
            return
        page.wait_for_timeout(10)
    raise AssertionError("waited in vain")


@contextlib.contextmanager
def holding(page: Page) -> Iterator[list[Route]]:
    """What is asked for of samples is not answered before the end; those whom nobody waits for any more never are."""
    held: list[Route] = []
    page.route("**/api/cards*", lambda route: held.append(route))
    yield held
    page.unroute("**/api/cards*")
    for route in held:
        with contextlib.suppress(Exception):
            route.continue_()


def test_the_grid_shows_samples_with_pictures_and_boxes(page: Page, every: Served) -> None:
    opened(page, every)
    expect(page.locator(".card:visible")).to_have_count(13)
    expect(page.locator("#count")).to_have_text("13 samples")
    expect(page).to_have_title("every.fld · fastloader")
    images = page.locator(".card:visible .stage > img:first-child")
    expect(images).to_have_count(12)
    page.wait_for_function(
        "() => [...document.querySelectorAll('.card:not([hidden]) img')].every(one => one.naturalWidth > 20)"
    )
    expect(page.locator(".card:visible svg.overlay rect")).to_have_count(12)
    expect(page.locator(".card:visible img.mask")).to_have_count(12)
    expect(page.locator(".card:visible .stage.number")).to_have_text("3")  # all else is missing there
    page.locator("#show").select_option(label="text")
    expect(page.locator(".card:visible .note")).to_have_text("missing")
    page.locator("#show").select_option(label="image")
    expect(page.locator(".card:visible .words").nth(1)).to_contain_text("label 1")
    page.keyboard.press("o")
    expect(page.locator("svg.overlay")).to_have_count(0)


def test_any_field_can_stand_for_a_sample(page: Page, every: Served) -> None:
    opened(page, every)
    for name in ("sound", "mel", "video", "clip", "text", "tokens", "embedding", "score", "mask", "tree"):
        page.locator("#show").select_option(label=name)
        kind = next(shown.kind for shown in every.samples.shown if shown.name == name)
        expect(page.locator(f".card:visible .stage.{kind}")).to_have_count(12)
        if kind in ("sound", "spectrogram", "array"):
            page.wait_for_function(PAINTED, arg=".card:not([hidden]) canvas")
        elif kind in ("video", "frames", "mask"):
            page.wait_for_function("() => document.querySelector('.card:not([hidden]) img')?.naturalWidth > 20")
        else:
            expect(page.locator(".card:visible .stage").first).to_have_text(re.compile(r"\S"), use_inner_text=True)


PAINTED = """selector => [...document.querySelectorAll(selector)].every(canvas => {
    const blank = document.createElement('canvas');
    [blank.width, blank.height] = [canvas.width, canvas.height];
    return canvas.width && canvas.toDataURL() !== blank.toDataURL();
})"""
"""Whether something is drawn on all canvases of a selector."""


def test_keys_lead_everywhere(page: Page, every: Served) -> None:
    opened(page, every)
    expect(page.locator(".card:visible")).to_have_count(13)
    selected = page.locator(".card.selected .name")
    expect(selected).to_have_text("things/disc_000")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(selected).to_have_text("things/disc_002")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator(".sample h2")).to_have_text("#1things/disc_001")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".sample h2")).to_have_text("#2things/disc_002")
    page.keyboard.press("Escape")
    expect(page.locator("#page")).to_be_hidden()
    expect(selected).to_have_text("things/disc_002")
    page.keyboard.press("End")
    expect(selected).to_have_text("things/nothing")
    page.keyboard.press("Home")
    expect(selected).to_have_text("things/disc_000")
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#help-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    expect(page.locator("#filter-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("h")
    expect(page.locator(".histograms h2")).to_be_visible()
    page.keyboard.press("h")
    expect(page.locator("#page")).to_be_hidden()


def test_a_sample_is_shown_with_all_it_holds(page: Page, every: Served) -> None:
    page.goto(f"{every.url}#/sample/2")
    panel = lambda name: page.locator(f"section[data-field={name}]")  # noqa: E731
    for name, seconds in (("sound", 0.5), ("wave", 0.5), ("video", 2.0)):
        media = panel(name).locator("audio, video").element_handle()
        page.wait_for_function("media => media.readyState >= 1", arg=media)
        assert media is not None
        assert media.evaluate("media => media.duration") == pytest.approx(seconds, abs=0.05)
        assert media.evaluate("media => media.error") is None
    film = panel("video").locator("video").element_handle()
    assert film is not None
    assert film.evaluate("async video => { video.muted = true; await video.play(); return video.videoWidth }") == 80
    page.wait_for_function("video => video.currentTime > 0.1", arg=film)
    page.wait_for_function("() => document.querySelector('[data-field=clip] canvas')?.dataset.loaded === '1'")
    page.wait_for_function(PAINTED, arg="[data-field=clip] canvas, canvas.wave, canvas.plot")
    before = panel("clip").locator(".player .quiet").inner_text()
    panel("clip").locator("button").click()
    page.wait_for_function("before => document.querySelector('.player .quiet').textContent !== before", arg=before)
    for name in ("image", "alpha", "raw", "mask", "flow"):
        image = panel(name).locator("img").first.element_handle()
        page.wait_for_function("image => image.complete && image.naturalWidth > 8", arg=image)
    expect(panel("image").locator("svg rect")).to_have_count(1)
    expect(panel("image").locator("svg circle")).to_have_count(2)
    expect(panel("text").locator("pre")).to_have_text("Sample 2: a disc at 26, 27.")
    expect(panel("tokens").locator(".token")).to_have_count(12)
    expect(panel("tree").locator(".tree-name").first).to_have_text("id")
    expect(panel("names").locator(".tree-string")).to_have_text(['"disc"', '"disc"'])
    expect(panel("label").locator(".big")).to_have_text("2")
    expect(panel("boxes").locator("tbody tr")).to_have_count(1)
    panel("image").locator(".about summary").click()
    for told in ("JPEGImageField", "crc32c"):
        expect(panel("image").locator(".about dl")).to_contain_text(told, use_inner_text=True)
    with page.expect_download() as download:
        panel("blob").locator(".about summary").click()
        panel("blob").locator("a.save").click()
    assert download.value.suggested_filename == "things_disc_002-blob.bin"
    expect(page.locator("#state")).to_have_text("not checked yet")
    page.keyboard.press("v")
    expect(page.locator("#state")).to_have_text("intact: all bytes match their checksums")
    expect(panel("image").locator("h3 .state")).to_have_text("✓ intact")


def test_sounds_and_videos_of_all_kinds_are_played(page: Page, tmp_path: Path, sounds: dict[str, Path]) -> None:
    files = [sounds[f"speech.{ending}"] for ending in ("wav", "flac", "ogg", "opus", "mp3")]
    with fl.DatasetWriter(
        tmp_path / "x.fld", {"sound": fl.AudioCompressedField(), "video": fl.VideoCompressedField()}
    ) as writer:
        for file in files:
            writer.write_sample({"sound": file, "video": video("vp9.webm") if file == files[0] else None})
    with Served(tmp_path / "x.fld") as served:
        for index in range(len(files)):
            page.goto(f"{served.url}#/sample/{index}")
            expect(page.locator(".sample h2")).to_have_text(f"#{index}")
            expect(page.locator("audio, video")).to_have_count(1 if index else 2)
            for media in page.locator("audio, video").element_handles():
                page.wait_for_function("media => media.readyState >= 1 || media.error", arg=media)
                assert media.evaluate("media => media.duration") > 1, files[index]


def test_damage_is_shown_and_nothing_else_is_lost(page: Page, every_path: Path, tmp_path: Path) -> None:
    with Served(every_path) as served:
        number = next(shown.number for shown in served.samples.shown if shown.name == "image")
        place = served.ask("sample/1")["fields"][str(number)]["place"]
    data = bytearray(every_path.read_bytes())
    data[place["offset"] + 700] ^= 16
    (tmp_path / "broken.fld").write_bytes(data)
    with Served(tmp_path / "broken.fld") as served:
        page.goto(served.url)
        expect(page.locator(".card:visible .note.bad")).to_have_count(1)
        expect(page.locator(".card:visible .stage > img:first-child")).to_have_count(11)
        page.goto(f"{served.url}#/sample/1")
        expect(page.locator("[data-field=image] .note.bad").first).to_contain_text("payload damaged: crc32c stored")
        page.keyboard.press("v")
        expect(page.locator("#state")).to_have_text("damaged: image")
        expect(page.locator("[data-field=text] pre")).to_contain_text("Sample 1")


def test_samples_are_searched_by_key(page: Page, every: Served) -> None:
    opened(page, every)
    for query, found in (("things/disc_00", 10), ("*_01?", 2), ("=things/nothing", 1), ("like nothing", 0)):
        page.keyboard.press("/")
        page.keyboard.type(query)
        page.keyboard.press("Enter")
        expect(page.locator("#count")).to_have_text(f"{found} of 13 samples")
        expect(page.locator(".card:visible")).to_have_count(found)
        expect(page.locator("#empty")).to_have_text("No sample is like that." if not found else "", use_inner_text=True)
    page.locator(".chip").click()
    expect(page.locator("#count")).to_have_text("13 samples")


def test_a_number_leads_to_its_sample(page: Page, every: Served) -> None:
    opened(page, every)
    page.keyboard.press("/")
    page.keyboard.type("#7")
    page.keyboard.press("Enter")
    expect(page.locator(".sample h2")).to_contain_text("#7")


def test_samples_are_filtered_counted_and_linked_to(page: Page, context: BrowserContext, every: Served) -> None:
    opened(page, every)
    page.keyboard.press("f")
    page.locator("#filter-column").select_option(label="score")
    page.locator("#filter-operation").select_option("between")
    page.locator("#filter-value").fill("1")
    page.locator("#filter-to").fill("oh")
    page.locator("#filter-apply").click()
    expect(page.locator("#filter-note")).to_have_text("“oh” is no number")
    page.locator("#filter-to").fill("3")
    page.locator("#filter-apply").click()
    expect(page.locator("#count")).to_have_text("7 of 13 samples")
    expect(page.locator(".card:visible .name")).to_have_text([f"things/disc_{i:03d}" for i in range(3, 10)])
    page.keyboard.press("h")
    chart = page.locator(".panel", has=page.get_by_role("heading", name="label", exact=True))
    expect(chart.locator(".number")).to_have_text(["2", "2", "1", "2"])
    chart.locator(".labels button").nth(3).click()
    expect(page.locator("#count")).to_have_text("2 of 13 samples")
    expect(page.locator(".chip")).to_have_text(
        [re.compile("score ≥ 1"), re.compile("score ≤ 3"), re.compile("label = 3")]
    )
    page.locator(".card:visible").nth(1).click()
    expect(page.locator(".sample h2")).to_contain_text("things/disc_007")
    page.locator("#link").click()
    expect(page.locator("#toast")).to_have_text("The link is copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    other = context.new_page()
    other.goto(link)
    expect(other.locator(".sample h2")).to_contain_text("things/disc_007")
    expect(other.locator(".sample-bar > .quiet")).to_have_text("2 of 2")
    other.keyboard.press("Escape")
    expect(other.locator("#count")).to_have_text("2 of 13 samples")
    page.go_back()
    expect(page.locator("#page")).to_be_hidden()


def test_histograms_are_drawn_for_all_columns(page: Page, every: Served) -> None:
    page.goto(f"{every.url}#/histograms")
    expect(page.locator(".chart")).to_have_count(len(every.samples.columns))
    assert page.locator(".chart .note").count() == 0
    assert page.locator(".bins button").count() > 10
    tallest = page.evaluate("Math.max(...[...document.querySelectorAll('.bins .fill')].map(one => one.offsetHeight))")
    assert tallest > 100


def test_ten_million_samples_are_scrolled_through(page: Page, many: Served) -> None:
    page.goto(many.url)
    expect(page.locator("#count")).to_have_text("10,000,000 samples")
    filled(page, 0, 0)
    grid = page.locator("#grid")
    columns = page.locator(".card[data-row='0']:visible").count()
    for share in (0.5, 0.123, 0.999):
        grid.evaluate("(grid, share) => { grid.scrollTop = share * (grid.scrollHeight - grid.clientHeight) }", share)
        seen = filled(page, share * TEN_MILLION - 1000, share * TEN_MILLION + 1000)
        assert seen[-1] <= share * TEN_MILLION + 1000
    before = seen[0]
    grid.hover()
    page.mouse.wheel(0, 600)  # a little, however many samples the bar stands for
    assert before < filled(page, before + 1)[0] <= before + 5 * columns
    page.keyboard.press("End")
    expect(page.locator(".card.selected .name")).to_have_text("#9,999,999")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("PageUp")
    page.keyboard.press("Home")
    expect(page.locator(".card.selected .name")).to_have_text("#0")
    filled(page, 0, 0)
    assert page.locator(".card").count() < 150
    page.goto(f"{many.url}#/?where={quote(json.dumps(['1.value', '=', '7']))}")
    expect(page.locator("#count")).to_have_text("1,000,000 of 10,000,000 samples")
    page.keyboard.press("End")
    expect(page.locator(".card.selected .name")).to_have_text("#9,999,997")
    page.keyboard.press("Enter")
    expect(page.locator(".sample-bar > .quiet")).to_have_text("1,000,000 of 1,000,000")
    page.keyboard.press("Escape")
    expect(page.locator(".card.selected .name")).to_have_text("#9,999,997")


def test_what_is_out_of_sight_is_no_longer_waited_for(page: Page, many: Served) -> None:
    page.goto(many.url)
    filled(page, 0, 0)
    grid = page.locator("#grid")
    with holding(page) as held:
        grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight / 2 }")
        handed_over(page, lambda: held)
        waited_for = {route.request.url for route in held}
        with page.expect_event("requestfailed", lambda request: request.url in waited_for):
            grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight / 4 }")
    page.wait_for_function("() => document.querySelector('.card:not([hidden]) .name').textContent.startsWith('#2,')")


def test_a_sample_can_be_opened_before_it_is_there(page: Page, many: Served) -> None:
    opened(page, many)
    with holding(page) as held:
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        handed_over(page, lambda: held)
    expect(page.locator(".sample h2")).to_have_text("#9,999,999")


def test_hostile_text_stays_text(page: Page, hostile: Served) -> None:
    opened(page, hostile)
    expect(page.locator(".card:visible")).to_have_count(len(EVIL))
    for name in hostile.samples.shown:
        page.locator("#show").select_option(str(name.number))
        expect(page.locator(".card:visible .stage")).to_have_count(len(EVIL))
    page.locator("#show").select_option("0")
    expect(page.locator(".card:visible .stage.text .text")).to_have_text(list(EVIL), use_inner_text=False)
    expect(page.locator(".card:visible .name").nth(1)).to_have_text(EVIL[1], use_inner_text=True)
    for index, evil in enumerate(EVIL):
        page.goto(f"{hostile.url}#/sample/{index}")
        expect(page.locator("[data-field=text] pre.prose")).to_have_text(evil, use_inner_text=False)
        expect(page.locator("[data-field=tree] .tree-name").first).to_have_text(evil, use_inner_text=False)
        page.keyboard.press("v")
        expect(page.locator("#state")).to_contain_text("intact")
    page.goto(f"{hostile.url}#/histograms")
    expect(page.locator(".chart")).to_have_count(len(hostile.samples.columns))
    page.goto(f"{hostile.url}#/sample/3?key=%3Cimg%20src%3Dx%3E&where=%3Cb%3E&show=%3Cscript%3E&at=x")
    expect(page.locator(".sample h2")).to_be_visible()
    expect(page).to_have_title("hostile.fld · fastloader")
    assert page.locator("iframe, object, embed, main script, main svg:not(.overlay)").count() == 0


def test_files_of_a_dataset_never_run(context: BrowserContext, hostile: Served) -> None:
    page = context.new_page()
    for number in (3, 5):  # pages, and a page that begins like a JPEG
        for index in (0, 1):
            with contextlib.suppress(Exception):  # it is saved instead
                page.goto(f"{hostile.url}api/file/{index}/{number}")
            assert page.title() != "owned"


def test_light_dark_and_print(page: Page, every: Served) -> None:
    page.goto(f"{every.url}#/sample/0")
    expect(page.locator("[data-field=image] img").first).to_be_visible()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    body = page.locator("body")
    page.emulate_media(color_scheme="dark")
    expect(body).not_to_have_css("background-color", light)
    page.keyboard.press("t")
    expect(body).to_have_css("background-color", light)
    page.reload()
    expect(page.locator("[data-field=image] img").first).to_be_visible()
    expect(body).to_have_css("background-color", light)  # as it was chosen
    page.emulate_media(media="print")
    expect(page.locator("#filter")).to_be_hidden()
    expect(page.locator("[data-field=text] pre")).to_be_visible()
    assert page.pdf()[:5] == b"%PDF-"


def test_variants_are_shown_side_by_side(page: Page, every_path: Path) -> None:
    with Served(every_path, pipelines=PIPELINES) as served:
        page.goto(f"{served.url}#/sample/4")
        expect(page.locator(".variant")).to_have_count(8)
        expect(page.locator(".variant img")).to_have_count(8)
        page.wait_for_function(
            "() => [...document.querySelectorAll('.variant img')].every(one => one.naturalWidth === 48)"
        )
        expect(page.locator(".variant svg").first).to_be_attached()
        page.locator("#variants select").select_option("4")
        expect(page.locator(".variant")).to_have_count(4)


class _Elsewhere(BaseHTTPRequestHandler):
    link = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(f"<a href='{self.link}'>look</a><img src='{self.link}api/picture/0/0'>".encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_a_token_is_needed_and_enough(context: BrowserContext, every_path: Path) -> None:
    page = context.new_page()
    with Served(every_path, token="secret-token") as served:
        plain = served.url.split("?")[0]
        page.goto(plain)
        expect(page.locator("p")).to_contain_text("needs its token")
        page.goto(f"{served.url}#/sample/3")
        expect(page.locator(".sample h2")).to_contain_text("#3")
        assert "secret-token" not in page.url
        assert page.evaluate("document.cookie") == ""
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        # A page of another site links here, and tries to show what is here.
        _Elsewhere.link = plain
        elsewhere = HTTPServer(("127.0.0.1", 0), _Elsewhere)
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        try:
            page.goto(f"http://localhost:{elsewhere.server_port}/")
            assert page.evaluate("document.images[0].decode().then(() => 'shown', () => 'refused')") == "refused"
            page.locator("a").click()
            expect(page.locator(".card:visible")).to_have_count(13)
        finally:
            elsewhere.shutdown()
            elsewhere.server_close()

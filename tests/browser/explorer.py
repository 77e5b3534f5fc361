"""The explorer's page in Chromium: see tests/browser/run."""

import argparse
import json
import pathlib
import shlex
import subprocess
import tempfile

from pages import Pages, fits_a_telephone
from playwright.sync_api import expect, sync_playwright

GOLDILOCKS = 2**64 - 2**32 + 1


class Explored(Pages):
    """Pages that the program writes."""

    def __init__(self, toroid, folder, browser):
        super().__init__(browser)
        self.toroid, self.folder = toroid, folder

    def explore(self, name, *arguments):
        """Has a page written; its path, and what `--json` says of the same."""
        path = self.folder / f"{name}.html"
        command = [self.toroid, "--json", "core", "explore", *map(str, arguments), "--html", path]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        return path, json.loads(said.stdout)

    def open(self, path, **options):
        return super().open(path.as_uri(), **options)


def middle(mark):
    """The middle of a mark, where the pointer means it and no other."""
    mark.scroll_into_view_if_needed()
    # Its ring is around its middle.
    box = mark.locator(".ring").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def points_are_hovered_and_clicked(pages, toroid):
    path, found = pages.explore("points", "--n", 4096, "--q", GOLDILOCKS)
    page = pages.open(path, viewport={"width": 1320, "height": 1000})
    assert page.locator(".mark").count() > 0
    front = [point for point in found["points"] if point["front"]]
    assert page.locator("#chart .mark.is-front").count() == len(front), "a mark a point of the front"

    wanted = front[len(front) // 2]
    name = f'{wanted["latency_cycles"]:,} cycles'
    mark = page.locator(f'#chart .mark.is-front[aria-label*="{name}"]').last
    tip = page.locator("#tip")
    expect(tip).to_be_hidden()
    page.mouse.move(*middle(mark))
    expect(tip).to_be_visible()
    expect(tip).to_contain_text(name)
    page.mouse.click(*middle(mark))
    expect(mark).to_have_class("mark is-front is-near is-chosen")
    expect(page.locator("#details")).to_contain_text(name)
    command = page.locator("#command").inner_text()
    (point,) = [point for point in found["points"] if point["command"] == command]
    assert point["latency_cycles"] == wanted["latency_cycles"], command
    page.mouse.move(1, 1)
    expect(tip).to_be_hidden()

    page.locator("#copy").click()
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == command

    with tempfile.TemporaryDirectory() as folder:
        program, *arguments = shlex.split(command)
        assert program == "toroid", command
        subprocess.run([toroid, *arguments, "--vectors", "1"], check=True, cwd=folder, capture_output=True)
        made = pathlib.Path(folder, point["core"], "rtl")
        assert len(list(made.glob(f'{point["core"]}_*.sv'))) == 1, f"{command} made no module with its parameters in {made}"


def the_keyboard_goes_everywhere(pages):
    path, _ = pages.explore("keyboard", "--n", 1024, "--q", GOLDILOCKS, "--device", "xc7a200t")
    page = pages.open(path, viewport={"width": 1320, "height": 1000})
    first = page.locator('#chart .mark[tabindex="0"]')
    assert first.count() == 1, "one stop of the tab key in the plot"
    first.focus()
    before = page.locator("#command").inner_text()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#tip")).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    chosen = page.locator("#chart .mark.is-chosen")
    expect(chosen).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()
    row = page.locator("#settings tbody tr").last
    row.focus()
    page.keyboard.press("Enter")
    expect(row).to_have_class("is-chosen")
    assert page.locator("#command").inner_text() != before


def every_axis_can_be_shown(pages):
    path, found = pages.explore("axes", "--n", 64, "--q", GOLDILOCKS, "--bandwidth", 60)
    page = pages.open(path)
    keys = page.eval_on_selector_all("#x option", "options => options.map(({ value }) => value)")
    for x in keys:
        page.select_option("#x", x)
        for y in keys:
            page.select_option("#y", y)
            broken = page.locator('#chart [transform*="NaN"], #chart [d*="NaN"], #chart [x1*="NaN"]').count()
            assert broken == 0, f"{x} by {y}"
    page.uncheck("#published")
    page.uncheck("#logx")
    page.uncheck("#logy")
    page.check("#unfit")
    expect(page.locator("#count")).to_have_text(f'{len(found["points"])} of {len(found["points"])} shown')
    expect(page.locator("#settings .cut").first).to_contain_text("bandwidth")


def it_fits_a_telephone_and_the_dark(pages):
    path, _ = pages.explore("small", "--n", 4096, "--q", GOLDILOCKS, "--device", "xcu280")
    colours = []
    for scheme in ["light", "dark"]:
        page = pages.open(path, viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True)
        fits_a_telephone(page)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        mark = page.locator("#chart .mark.is-front").nth(1)
        page.touchscreen.tap(*middle(mark))
        expect(mark).to_have_class("mark is-front is-chosen is-near")
        expect(page.locator("#command")).to_contain_text("toroid core make")
    assert colours[0] != colours[1]


def nothing_found_is_said(pages):
    path, found = pages.explore("nothing", "--n", 4096, "--q", 268369921, "--family", "ntt_inplace")
    assert not found["points"]
    page = pages.open(path)
    expect(page.locator("#summary")).to_contain_text("No core has a setting")
    expect(page.locator("#details")).to_contain_text("modulo 18446744069414584321 only")
    path, found = pages.explore("large", "--n", 131072, "--q", GOLDILOCKS, "--device", "ecp5-85k")
    assert not any(point["feasible"] for point in found["points"])
    page = pages.open(path)
    expect(page.locator("#summary")).to_contain_text("fits")
    assert page.locator("#chart .mark.is-unfit").count() == len(found["points"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--toroid", required=True)
    parser.add_argument("--browser", required=True)
    parser.add_argument("--screenshot", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        # Root has no sandbox; the pages are our own.
        browser = driver.chromium.launch(executable_path=options.browser, args=["--no-sandbox", "--disable-dev-shm-usage"])
        print(f"Chromium {browser.version}")
        pages = Explored(options.toroid, pathlib.Path(folder), browser)
        cases = [
            lambda: points_are_hovered_and_clicked(pages, options.toroid),
            lambda: the_keyboard_goes_everywhere(pages),
            lambda: every_axis_can_be_shown(pages),
            lambda: it_fits_a_telephone_and_the_dark(pages),
            lambda: nothing_found_is_said(pages),
        ]
        for case in cases:
            case()
        pages.check()
        if options.screenshot:
            path, _ = pages.explore("picture", "--n", 4096, "--q", GOLDILOCKS, "--device", "xcu280")
            page = pages.open(path, viewport={"width": 1320, "height": 900})
            # To the right, where its figures hide no published design.
            marks = page.locator("#chart .mark.is-front")
            page.mouse.click(*middle(marks.nth(marks.count() * 3 // 4)))
            page.screenshot(path=options.screenshot, full_page=True)
        browser.close()
    print(f"{len(cases)} passed")


if __name__ == "__main__":
    main()

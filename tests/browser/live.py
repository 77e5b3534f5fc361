"""The live page of a served drive, and of a cluster, in Chromium: see tests/browser/run."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from pages import Pages, fits_a_telephone
from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
.reg x = cor:0
.tv excess unsigned = x > 100 ? x - 100 : 0

    bootstrap excess, x
    return x
"""
#: Enough of them that the drive is at work as long as the test looks.
ROWS = 20_000


def board_of_the_package():
    """The modules of the Python package that show a cluster, without the native one, which they do not need."""
    spec = importlib.machinery.PathFinder.find_spec("toroid", [str(ROOT / "python")])
    sys.modules["toroid"] = importlib.util.module_from_spec(spec)
    return importlib.import_module("toroid._board"), importlib.import_module("toroid._status")


class Drive:
    """A served drive that computes on a column."""

    def __init__(self, toroid, folder):
        self.toroid, self.folder, self.work = toroid, folder, None
        self.run("keys", "generate", "--params", "message8", "--out", "keys", "--unencrypted")
        self.run("drive", "format", "drive.img", "--size", "1GiB", "--swap", "64MiB", "--label", "payroll")
        (folder / "excess.tasm").write_text(PROGRAM)
        (folder / "numbers.txt").write_text("".join(f"{number * 37 % 256}\n" for number in range(ROWS)))
        # Any free one at first, and the same again when the server is started again.
        self.port = 0
        self.serve()

    def run(self, *arguments):
        return subprocess.run([self.toroid, *arguments], check=True, cwd=self.folder, capture_output=True, text=True).stdout

    def serve(self):
        options = ["--listen", "127.0.0.1:0", "--metrics", str(self.port), "--experimental-computational-programs", "--log-level", "error"]
        command = [self.toroid, "--json", "drive", "serve", "drive.img", *options]
        self.server = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        said = json.loads(self.server.stdout.readline())
        self.location, self.port = said["drives"][0], int(said["metrics"].rsplit(":", 1)[1])

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def status(self):
        with urllib.request.urlopen(f"{self.url}status") as answer:
            return json.load(answer)

    def compute(self):
        self.run("put", self.location, "keys/bootstrapping.key", "keys/key-switching.key")
        self.run("column", "put", self.location, "numbers", "numbers.txt", "--bits", "8", "--unsigned")
        command = [self.toroid, "--quiet", "map", self.location, "excess.tasm", "--input", "x=numbers", "--output", "excess"]
        self.work = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 240
        while not any(run["rows_done"] for drive in self.status()["drives"] for run in drive["running"]):
            assert self.work.poll() is None and time.monotonic() < end, "no program is under way"
            time.sleep(0.2)

    def stop(self):
        if self.work is not None and self.work.poll() is None:
            self.work.send_signal(signal.SIGINT)
            self.work.wait()
        self.server.terminate()
        self.server.wait()


def tile(page, name):
    """The first tile of a name."""
    return page.locator(".tile").filter(has=page.get_by_text(name, exact=True)).first


def figure(page, name):
    return tile(page, name).locator(".figure")


def a_drive_at_work_is_shown(pages, drive):
    page = pages.open(drive.url, [f"{drive.url}status"], viewport={"width": 1320, "height": 1000})
    expect(page).to_have_title("Toroid")
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("h1")).to_have_text("Toroid drive")
    # Rates take two looks.
    for name in ("Rows a second", "Bootstraps a second"):
        expect(figure(page, name)).not_to_have_text("–")
    expect(figure(page, "Programs running")).to_have_text("1")
    running = page.get_by_role("table", name="Programs under way").locator("tbody tr")
    expect(running).to_have_count(1)
    expect(running.locator("progress")).to_have_attribute("aria-label", re.compile(r"[\d,]+ of [\d,]+ rows"))
    tenants = page.get_by_role("table", name="Tenants").locator("tbody tr")
    expect(tenants).to_have_count(1)
    known = drive.status()["drives"][0]
    expect(tenants.locator("td").first).to_have_text(known["hosts"][0]["host"])
    # The page and the metrics have the same figures.
    with urllib.request.urlopen(f"{drive.url}metrics") as answer:
        metrics = answer.read().decode()
    assert f'toroid_keys_bytes{{subsystem="{known["subsystem"]}",nsid="1"}} {known["memory"]["keys_bytes"]}\n' in metrics
    # The figures move on.
    rows = tile(page, "Rows a second").locator(".more")
    expect(rows).not_to_have_text(rows.inner_text())
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#state")).to_have_text("paused")
    page.get_by_role("button", name="Go on").press("Enter")
    expect(page.locator("#state")).to_have_text("live")
    return page


def a_drive_that_is_gone_and_comes_back_is_said(pages, drive, page):
    expect(page.locator("#lost")).to_be_hidden()
    drive.stop()
    expect(page.locator("#state")).to_have_text("no answer")
    expect(page.get_by_role("alert")).to_contain_text("the page goes on asking")
    # Old figures stay, and are not taken for new ones.
    expect(page.locator("main")).to_have_class("stale")
    assert page.locator(".tile").count() > 10
    # A browser writes that it could not load the figures.
    pages.problems[:] = [problem for problem in pages.problems if "ERR_CONNECTION_REFUSED" not in problem and "ERR_EMPTY_RESPONSE" not in problem]
    drive.serve()
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.get_by_text("No program runs.")).to_be_visible()
    pages.problems[:] = [problem for problem in pages.problems if "ERR_CONNECTION_REFUSED" not in problem]


def it_fits_a_telephone_and_the_dark(pages, url):
    colours = []
    for scheme in ["light", "dark"]:
        page = pages.open(url, [f"{url}status"], viewport={"width": 390, "height": 844}, color_scheme=scheme)
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator(".tile").first).to_be_visible()
        fits_a_telephone(page)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]


def sites_elsewhere_read_nothing(drive):
    for host in ("evil.example", f"evil.example:{drive.port}"):
        asked = urllib.request.Request(f"{drive.url}status", headers={"Host": host})
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(asked)
            raise AssertionError(host)


def a_cluster_is_shown(pages, board, status):
    drives = [
        status.DriveStatus("nvme+tcp://10.0.0.7:4420/nqn.a", state="computing", work="staff", rows=(1280, 1408), seconds=2.5, rows_done=1280, units_done=10),
        status.DriveStatus("b.img", state="silent", failures=2, reason="<b>no route</b>"),
        status.DriveStatus("node-3", role="compute"),
    ]
    job = status.JobStatus("staff", 100_000, 1280, 770, 1, 10, retries=2, stolen=1, seconds=75.0, seconds_left=5400.0)
    now = [status.ClusterStatus(drives, [job], seconds=80.0)]
    with board.Board(lambda: now[0]) as shown:
        page = pages.open(shown.url, [f"{shown.url}status"], viewport={"width": 1320, "height": 900})
        expect(page.locator("h1")).to_have_text("Toroid cluster")
        expect(figure(page, "Time left")).to_have_text("1 h 30 min")
        expect(figure(page, "Retries")).to_have_text("2")
        rows = page.get_by_role("table", name="Drives and nodes").locator("tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text("staff 1,280..1,408")
        # What a drive says is text, whatever stands in it.
        expect(rows.nth(1)).to_contain_text("<b>no route</b>")
        now[0] = status.ClusterStatus([status.DriveStatus("a.img")], seconds=82.0, simulated=True)
        expect(page.get_by_text("No question runs.")).to_be_visible()
        expect(page.locator("#facts")).to_contain_text("simulated")
        it_fits_a_telephone_and_the_dark(pages, shown.url)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--toroid", required=True)
    parser.add_argument("--browser", required=True)
    parser.add_argument("--screenshot", type=pathlib.Path)
    options = parser.parse_args()
    # A loaded machine computes slowly.
    expect.set_options(timeout=120_000)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        # Root has no sandbox; the pages are our own.
        browser = driver.chromium.launch(executable_path=options.browser, args=["--no-sandbox", "--disable-dev-shm-usage"])
        pages = Pages(browser)
        a_cluster_is_shown(pages, *board_of_the_package())
        drive = Drive(options.toroid, pathlib.Path(folder))
        try:
            drive.compute()
            page = a_drive_at_work_is_shown(pages, drive)
            it_fits_a_telephone_and_the_dark(pages, drive.url)
            sites_elsewhere_read_nothing(drive)
            if options.screenshot:
                # The curves need some time.
                page.wait_for_timeout(75_000)
                page.set_viewport_size({"width": 1320, "height": 800})
                page.evaluate("document.activeElement.blur()")
                page.screenshot(path=options.screenshot, full_page=True)
            a_drive_that_is_gone_and_comes_back_is_said(pages, drive, page)
        finally:
            drive.stop()
        pages.check()
        browser.close()
    print("5 passed")


if __name__ == "__main__":
    main()

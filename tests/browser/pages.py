"""Pages in Chromium, with a note of all that goes wrong in them."""


class Pages:
    """Opens pages in a browser. A page of `allowed` may load that from where it came, and nothing else."""

    def __init__(self, browser):
        self.browser, self.problems = browser, []

    def open(self, url, allowed=(), **options):
        context = self.browser.new_context(permissions=["clipboard-read", "clipboard-write"], **options)
        page = context.new_page()
        # A machine that tests the rest at the same time is slow to start a page.
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: self.problems.append(f"{url}: {error}"))
        page.on("console", lambda line: line.type == "error" and self.problems.append(f"{url}: {line.text}"))
        page.on("request", lambda asked: asked.url not in (url, *allowed) and self.problems.append(f"{url} loads {asked.url}"))
        page.goto(url)
        return page

    def check(self):
        assert not self.problems, "\n".join(self.problems)


def fits_a_telephone(page, width=390):
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{wide} pixels wide"

"""A real browser opens /statusz of a real server.

statusz_test.py ATTENDANT_SERVER ATTENDANT [SCREENSHOT.png]: headless Chromium,
driven by playwright; axe-core looks for what would keep people out. With a
third argument the page under load is photographed. Without Chromium or the
packages of requirements-long.txt the exit code is 77, for "skipped".
"""

import contextlib
import re
import shutil
import subprocess
import sys
import threading
import unittest
import urllib.request

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

CHROMIUM = shutil.which("chromium")
READY = re.compile(r" ready: grpc=([^ ,]+) http=([^ ]+) ")
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)$", re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# What moves by itself, even on an idle server.
RESTLESS = re.compile("process_|attendant_gpu_")
ANSWERS = (
    "[...document.querySelectorAll('.card')]"
    ".find(c => c.textContent.endsWith('answers')).querySelector('b').textContent"
)
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1100, "height": 1150}


def key(name, labels):
    """A sample's name with its labels in one order."""
    return name, tuple(sorted(LABEL.findall(labels or "")))


class StatusPageTest(unittest.TestCase):
    """server/statusz."""

    server, client = sys.argv[1:3]

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        flags = ["--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--log_level=error"]
        small = ["--host_pool_bytes=256M", "--max_queued_bytes=256M"]
        process = cls.stack.enter_context(
            subprocess.Popen(
                [cls.server, *flags, *small, "--lame_duck_seconds=0"],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        cls.stack.callback(process.terminate)
        found = READY.search(process.stdout.readline())
        assert found, "the server did not get ready"
        cls.grpc, cls.http = found.groups()
        driver = cls.stack.enter_context(sync_playwright())
        cls.browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        cls.stack.callback(cls.browser.close)
        for _ in range(3):
            cls.attend("1,64,64,2,1,64")
        cls.attend("1,64,64,2,1,512", "--request-id=too-wide")

    @classmethod
    def attend(cls, shape, *flags):
        """One job; whatever becomes of it."""
        subprocess.run(
            [cls.client, "attend", f"--server={cls.grpc}", f"--random={shape}"]
            + [*flags, "--out=/dev/null"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )

    def open(self, **options):
        """The page, with its second answer shown, and what went wrong in it."""
        context = self.browser.new_context(**options)
        self.addCleanup(context.close)
        page = context.new_page()
        self.asked, self.wrong = [], []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on(
            "console",
            lambda line: (
                self.wrong.append(line.text)
                if line.type in ("error", "warning")
                else None
            ),
        )
        page.goto(f"http://{self.http}/statusz")
        self.wait_for_answers(page, 2)
        return page

    @staticmethod
    def wait_for_answers(page, more):
        """Until `more` further answers were shown."""
        page.wait_for_function(
            "from => Number(document.body.dataset.answers ?? 0) >= from",
            arg=int(page.evaluate("document.body.dataset.answers ?? 0")) + more,
            timeout=30_000,
        )

    def shown(self, page):
        """Every number of the page that says which sample it is."""
        return page.eval_on_selector_all(
            "[data-metric]",
            "all => all.map(e => [e.dataset.metric, e.dataset.value])",
        )

    def test_every_number_is_the_one_of_metrics(self):
        page = self.open()
        page.click("#pause")
        shown = self.shown(page)
        with urllib.request.urlopen(f"http://{self.http}/metrics") as reply:
            text = reply.read().decode()
        found = SAMPLE.findall(text)
        scraped = {key(name, labels): float(v) for name, labels, v in found}
        compared = 0
        for source, number in shown:
            name, labels = re.fullmatch(r"([^{]+)(?:\{(.*)\})?", source).groups()
            self.assertTrue(key(name, labels) in scraped, f"{source} is not there")
            if not RESTLESS.match(name):
                compared += 1
                # /metrics is text of 16 digits.
                same = scraped[key(name, labels)]
                self.assertAlmostEqual(float(number) / (same or 1), bool(same), 14)
        self.assertGreater(compared, 25)

    def test_nothing_comes_from_elsewhere_and_nothing_goes_wrong(self):
        page = self.open()
        self.assertEqual(self.wrong, [])
        self.assertGreater(len(self.asked), 5)
        for url in self.asked:
            self.assertTrue(url.startswith((f"http://{self.http}/", "data:")), url)
        self.assertEqual(page.text_content("#health"), "ready")

    def test_a_refused_request_is_listed_by_its_id(self):
        row = self.open().text_content("#error-rows tr")
        self.assertIn("too-wide", row)
        self.assertIn("INVALID_ARGUMENT", row)
        self.assertIn("512", row)

    def test_people_are_not_kept_out(self):
        for scheme in ("light", "dark"):
            for size in (PHONE, DESK):
                page = self.open(color_scheme=scheme, viewport=size)
                page.click("summary")
                found = Axe().run(page).response["violations"]
                self.assertEqual(
                    [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found],
                    [],
                    f"{scheme}, {size}",
                )

    def test_fits_a_phone(self):
        page = self.open(viewport=PHONE)
        page.click("summary")
        width = page.evaluate("document.documentElement.scrollWidth")
        self.assertLessEqual(width, PHONE["width"])

    def test_works_by_keyboard(self):
        page = self.open()
        page.keyboard.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.className"), "skip")
        for _ in range(40):
            page.keyboard.press("Tab")
            focus = "document.activeElement.id || document.activeElement.tagName"
            focused = page.evaluate(focus)
            if focused == "pause":
                page.keyboard.press("Enter")
            elif focused == "SUMMARY":
                page.keyboard.press("Enter")
                break
        self.assertEqual(page.get_attribute("#pause", "aria-pressed"), "true")
        self.assertTrue(page.is_visible("#flags"))

    def test_answers_by_stream_are_answers(self):
        page = self.open()
        page.wait_for_function(f"() => {ANSWERS} === '0 /s'", timeout=30_000)
        self.attend("1,64,64,2,1,64", "--door=stream")
        page.wait_for_function(f"() => {ANSWERS} !== '0 /s'", timeout=10_000)

    def test_stays_live_under_load(self):
        stop = threading.Event()

        def load():
            while not stop.is_set():
                self.attend("1,1024,1024,8,8,64")

        callers = [threading.Thread(target=load) for _ in range(4)]
        for caller in callers:
            caller.start()
        try:
            page = self.open(viewport=DESK, device_scale_factor=0.75)
            count = 'td[data-metric^="attendant_request_duration_seconds_count"]'
            first = int(page.get_attribute(count, "data-value"))
            self.wait_for_answers(page, 8)
            later = int(page.get_attribute(count, "data-value"))
            self.assertGreater(later, first)
            self.assertNotEqual(page.text_content("#flops"), "0 FLOP/s")
            self.assertGreater(
                page.locator("#stage-rows svg polyline").count(), 3, "no plots"
            )
            self.assertEqual(self.wrong, [])
            if len(sys.argv) > 3:
                self.wait_for_answers(page, 20)
                page.screenshot(path=sys.argv[3])
        finally:
            stop.set()
            for caller in callers:
                caller.join()


if __name__ == "__main__":
    if CHROMIUM is None:
        print("skipped: no chromium")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)

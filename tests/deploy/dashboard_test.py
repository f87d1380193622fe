"""Every query of dashboard and rules gets data from a real server.

dashboard_test.py ATTENDANT_SERVER ATTENDANT [CASE...]: starts the server, sends jobs,
has a real Prometheus with the real rules scrape it, and asks it each query of
the dashboard. Needs prometheus and promtool; no network beyond loopback.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).parents[2]
RULES = [ROOT / f"deploy/prometheus/{n}.yml" for n in ("recording", "alerts")]
DASHBOARD = ROOT / "deploy/grafana/attendant.json"
READY = re.compile(r" ready: grpc=([^ ,]+) http=([^ ]+) backend=(\w+)")
LISTENING = re.compile(r'msg="Listening on".* address=(127\.0\.0\.1:\d+)')
METRIC = re.compile(r"(?<![\w:])(?:attendant|process)_[a-z_]+")
# Only a server with a GPU has these, so elsewhere its source vouches for them.
GPU_METRIC = re.compile(r"attendant_gpu_\w+")
GPU_SOURCE = ROOT / "server/monitoring/gpu_metrics.cc"


def queries():
    """(panel, PromQL) of all panels."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def get(url):
    """The body of a page, as text."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode()


@contextlib.contextmanager
def running(command, **options):
    """A process that is stopped in the end."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


class DashboardTest(unittest.TestCase):
    """deploy/grafana and deploy/prometheus against a live scrape."""

    server, client = sys.argv[1:3]

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        flags = [
            "--listen=127.0.0.1:0",
            "--http=127.0.0.1:0",
            "--host_pool_bytes=256M",
            "--max_queued_bytes=256M",
            "--lame_duck_seconds=0",
        ]
        process = cls.stack.enter_context(
            running([cls.server, *flags], stdout=subprocess.PIPE)
        )
        found = READY.search(process.stdout.readline())
        assert found, "the server did not get ready"
        cls.grpc, cls.http, cls.backend = found.groups()
        cls.send_job()
        cls.scrape = get(f"http://{cls.http}/metrics")
        cls.start_prometheus()

    @classmethod
    def send_job(cls):
        subprocess.run(
            [
                cls.client,
                "check",
                f"--server={cls.grpc}",
                "--random=1,32,32,2,1,64",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    @classmethod
    def start_prometheus(cls):
        work = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in RULES],
            "scrape_configs": [
                {
                    "job_name": "attendant",
                    "static_configs": [{"targets": [cls.http]}],
                }
            ],
        }
        (work / "prometheus.yml").write_text(json.dumps(config))
        log = work / "log"
        with log.open("w") as lines:
            process = cls.stack.enter_context(
                running(
                    [
                        "prometheus",
                        f"--config.file={work}/prometheus.yml",
                        f"--storage.tsdb.path={work}/tsdb",
                        "--web.listen-address=127.0.0.1:0",
                    ],
                    stderr=lines,
                )
            )
        # It says which port it was given.
        while not (found := LISTENING.search(log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        cls.prometheus = f"http://{found[1]}/api/v1/query?"

    def has_data(self, promql):
        """Whether Prometheus answers the query with a sample at least."""
        for variable, value in (
            ("$job", ".*"),
            ("$instance", ".*"),
            ("$__rate_interval", "5m"),
        ):
            promql = promql.replace(variable, value)
        self.assertNotIn("$", promql, "a variable that the test does not know")
        url = self.prometheus + urllib.parse.urlencode({"query": promql})
        try:
            return bool(json.loads(get(url))["data"]["result"])
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        except OSError:
            return False  # it still starts

    def test_every_metric_named_is_in_the_scrape(self):
        scraped = set(re.findall(r"^([a-zA-Z_:]\w*)", self.scrape, re.MULTILINE))
        texts = [DASHBOARD.read_text(), *(path.read_text() for path in RULES)]
        names = set()
        for text in texts:
            # Names in groups and recorded series (job:...) are not scraped.
            names |= set(METRIC.findall(re.sub(r"\w+:[\w:]+|name: .*", "", text)))
        if self.backend != "cuda":
            for name in [name for name in names if GPU_METRIC.match(name)]:
                self.assertIn(f'"{name}"', GPU_SOURCE.read_text())
                names.remove(name)
        self.assertGreater(len(names), 20)
        self.assertEqual(names - scraped, set())

    def test_every_query_of_the_dashboard_returns_data(self):
        pending = [
            query
            for query in queries()
            if self.backend == "cuda" or not GPU_METRIC.search(query[1])
        ]
        self.assertGreater(len(pending), 30)
        deadline = time.monotonic() + 90
        while pending and time.monotonic() < deadline:
            self.send_job()  # so that rates are above zero
            time.sleep(0.5)
            pending = [q for q in pending if not self.has_data(q[1])]
        self.assertEqual(pending, [], "queries without data")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])

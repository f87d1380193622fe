"""systemd's own tool checks the unit, the server its configuration file.

systemd_test.py ATTENDANT_SERVER [CASE...]: without systemd-analyze the unit is not
checked and the exit code is 77, for "skipped".
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import configured_server
from run_cases import run_cases

SYSTEMD = pathlib.Path(__file__).parents[2] / "deploy/systemd"
UNIT = (SYSTEMD / "attendant.service").read_text()
SETTING = re.compile(r"^(\w+) = (.*)$", re.MULTILINE)


def settings():
    """The example configuration file's values by name."""
    return dict(SETTING.findall((SYSTEMD / "attendant.conf").read_text()))


class UnitTest(unittest.TestCase):
    """deploy/systemd."""

    server = sys.argv[1]

    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)

    def analyze(self, *arguments):
        """Runs systemd-analyze over the unit with the server that was built."""
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze: the unit is not checked")
        unit = self.work / "attendant.service"
        unit.write_text(UNIT.replace("/usr/bin/attendant-server", self.server))
        return subprocess.run(
            ["systemd-analyze", *arguments, unit],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def test_unit_is_well_formed(self):
        done = self.analyze("--man=no", "verify")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn(str(self.work), done.stdout)

    def test_unit_is_well_confined(self):
        # 0 is best, 10 worst; a plain service has 9.6.
        done = self.analyze("security", "--offline=true", "--threshold=25")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_there_is_time_to_drain(self):
        conf = settings()
        stop = int(re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.M)[1])
        needed = int(conf["lame_duck_seconds"]) + int(conf["drain_seconds"])
        self.assertGreater(stop, needed)

    def test_unit_names_the_configuration_file(self):
        self.assertIn("--config=/etc/attendant/attendant.conf\n", UNIT)

    def test_server_starts_with_the_configuration_file(self):
        file = SYSTEMD / "attendant.conf"
        line, code = configured_server.first_line(self.server, file)
        self.assertEqual(code, 0)
        self.assertIn(" ready: ", line)


if __name__ == "__main__":
    run_cases(*sys.argv[2:])

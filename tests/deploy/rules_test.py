"""Prometheus' own tool checks and tests the rules; the runbook covers them.

Needs promtool (Debian's prometheus package). No network.
"""

import pathlib
import re
import subprocess
import unittest

HERE = pathlib.Path(__file__).parent
DEPLOY = HERE.parents[1] / "deploy"


def alert_names():
    """The alerts, in the order of the file."""
    text = (DEPLOY / "prometheus/alerts.yml").read_text()
    return re.findall(r"- alert: (\w+)", text)


class RulesTest(unittest.TestCase):
    """deploy/prometheus and the runbook."""

    def promtool(self, *arguments):
        """Runs promtool and fails with what it says."""
        done = subprocess.run(
            ["promtool", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_configuration_and_rules_are_well_formed(self):
        self.promtool("check", "config", DEPLOY / "prometheus/prometheus.yml")
        for name in ("recording", "alerts"):
            self.promtool("check", "rules", DEPLOY / f"prometheus/{name}.yml")

    def test_alerts_fire_when_they_should(self):
        self.promtool("test", "rules", HERE / "rules_test.yml")

    def test_every_alert_has_a_case_that_fires(self):
        cases = (HERE / "rules_test.yml").read_text()
        for name in alert_names():
            self.assertIn(f"runbook.md#{name.lower()}\n", cases)

    def test_runbook_has_one_entry_per_alert_and_no_other(self):
        runbook = (DEPLOY / "guides/runbook.md").read_text()
        entries = re.findall(r"^## (\w+)$", runbook, re.MULTILINE)
        self.assertEqual(sorted(entries), sorted(alert_names()))

    def test_every_alert_points_at_its_entry(self):
        text = (DEPLOY / "prometheus/alerts.yml").read_text()
        for block in text.split("- alert: ")[1:]:
            name = block.split()[0]
            entry = f"runbook: deploy/guides/runbook.md#{name.lower()}\n"
            self.assertIn(entry, block)

    def test_runbook_tells_how_urgent_each_is(self):
        runbook = (DEPLOY / "guides/runbook.md").read_text()
        text = (DEPLOY / "prometheus/alerts.yml").read_text()
        for block in text.split("- alert: ")[1:]:
            severity = re.search(r"severity: (\w+)", block)[1]
            self.assertIn(f"## {block.split()[0]}\n\n*{severity}.*", runbook)


if __name__ == "__main__":
    unittest.main()

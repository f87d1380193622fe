"""The tests of this folder fail when a file is broken on purpose.

broken_test.py ATTENDANT_SERVER ATTENDANT: copies what they look at into a project of
their own, breaks one file there at a time, and wants the test that is for it to fail.
What a test's own tool is missing for is skipped, and then the exit code is 77.
"""

import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from run_cases import run_cases

ROOT = pathlib.Path(__file__).parents[2]
LOOKED_AT = ("deploy", "tests/deploy", "server/monitoring/gpu_metrics.cc")
SERVER, ATTENDANT = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])
PROGRAMS = {
    "rules": [],
    "dashboard": [SERVER, ATTENDANT],
    "kubernetes": [SERVER],
    "systemd": [SERVER],
}


@dataclasses.dataclass
class Break:
    """What is done to a file below deploy/, and who has to notice."""

    test: str
    case: str
    needs: str
    file: str
    old: str
    new: str


def breaks():
    """One after the other."""
    form = ("rules", "RulesTest.test_configuration_and_rules_are_well_formed")
    form = (*form, "promtool")
    yield Break(*form, "prometheus/alerts.yml", "expr:", "exprr:")
    yield Break(*form, "prometheus/recording.yml", "rate(", "rat(")
    yield Break(*form, "prometheus/prometheus.yml", "rule_files", "rules_files")
    case = ("rules", "RulesTest.test_alerts_fire_when_they_should", "promtool")
    yield Break(*case, "prometheus/alerts.yml", "attendant_ready", "attendant_raedy")
    case = ("rules", "RulesTest.test_runbook_has_one_entry_per_alert_and_no_other", "true")
    yield Break(*case, "guides/runbook.md", "## AttendantDown", "## AttendantGone")
    board = ("prometheus", "grafana/attendant.json")
    case = "DashboardTest.test_every_metric_named_is_in_the_scrape"
    yield Break("dashboard", case, *board, "attendant_launches", "attendant_starts")
    case = "DashboardTest.test_every_query_of_the_dashboard_returns_data"
    yield Break("dashboard", case, *board, '"expr": "', '"expr": "(')
    base = ("kubernetes", "FilesTest", "true")
    yield Break(*base, "kubernetes/base/deployment.yaml", "replicas:", "replicaz:")
    yield Break(*base, "kubernetes/base/kustomization.yaml", "- service", "- servise")
    built = ("kubernetes", "CpuTest", "kubectl")
    yield Break(*built, "kubernetes/base/network-policy.yaml", "50051", "50052")
    yield Break(*built, "kubernetes/base/deployment.yaml", "drain_seconds", "dry")
    overlay = "kubernetes/overlays/h200/kustomization.yaml"
    built = ("kubernetes", "H200Test", "kubectl", overlay)
    yield Break(*built, "memory: 64Gi", "memory: 8Gi")
    yield Break(*built, "kind: Deployment", "kind: Deploymend")
    scaler = "kubernetes/components/autoscaling/horizontal-pod-autoscaler.yaml"
    built = ("kubernetes", "AutoscalingTest", "kubectl", scaler)
    yield Break(*built, "attendant_queued_requests", "attendant_waiting")
    unit = ("systemd", "", "systemd-analyze", "systemd/attendant.service")
    yield Break(*unit, "Restart=on-failure", "Restart=on-fealure")
    yield Break(*unit, "CapabilityBoundingSet=", "CapabilityBoundingSet=~CAP_BPF")
    yield Break("systemd", "", "true", "systemd/attendant.conf", "drain_", "dry_")


class BrokenTest(unittest.TestCase):
    """Every test of this folder that is quick."""

    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.root = pathlib.Path(work.name)
        for name in LOOKED_AT:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            copy(ROOT / name, self.root / name)

    def outcome(self, test, case):
        """The exit code of the copied test, and what it said."""
        script = self.root / f"tests/deploy/{test}_test.py"
        done = subprocess.run(
            [sys.executable, "-B", script, *PROGRAMS[test], *([case] if case else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def test_each_is_noticed(self):
        for one in breaks():
            with self.subTest(file=one.file, broken=one.old):
                if not shutil.which(one.needs):
                    self.skipTest(f"no {one.needs}")
                path = self.root / "deploy" / one.file
                whole = path.read_text()
                self.assertIn(one.old, whole)
                path.write_text(whole.replace(one.old, one.new))
                code, said = self.outcome(one.test, one.case)
                path.write_text(whole)
                self.assertNotIn(code, (0, 77), f"{one.test}_test took it:\n{said}")
                self.assertIn("FAILED (", said, "it failed for another reason")

    def test_whole_copies_are_taken(self):
        asked = {(one.test, one.case) for one in breaks() if shutil.which(one.needs)}
        for test, case in sorted(asked):
            if "every_query" not in case:  # half a minute; the same copy
                with self.subTest(test, case=case):
                    code, said = self.outcome(test, case)
                    self.assertIn(code, (0, 77), said)


if __name__ == "__main__":
    run_cases()

"""The Kubernetes manifests: built, schema-checked, and true to the server.

kubernetes_test.py ATTENDANT_SERVER [CASE...]: needs kubernetes-validate (tests/
requirements.txt). kubectl builds the overlays; without it only the plain files
are checked and the exit code is 77, for "skipped". No network, no cluster.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml
from run_cases import run_cases

ROOT = pathlib.Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
VERSION = "1.32"
# Kustomize's own files, and kinds that an operator adds to a cluster.
NO_SCHEMA = {"Kustomization", "Component", "PodMonitor"}
NAME = {"app.kubernetes.io/name": "attendant"}
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "Ki": 10, "Mi": 20, "Gi": 30}
BOUND = re.compile(r"host memory bound ([\d.]+) GiB")


def size(text):
    """Bytes of a size as the flags (4G, binary) or Kubernetes (4Gi) have it."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?i?)", text).groups()
    return int(number) << UNITS[unit]


def built(overlay):
    """Objects of an overlay, by name or place, by kind."""
    done = subprocess.run(
        ["kubectl", "kustomize", KUBERNETES / "overlays" / overlay],
        stdout=subprocess.PIPE,
        check=True,
    )
    return {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}


class FilesTest(unittest.TestCase):
    """The files as they are."""

    def test_every_file_follows_the_schema(self):
        files = sorted(KUBERNETES.rglob("*.yaml"))
        self.assertGreater(len(files), 10)
        for path in files:
            for one in yaml.safe_load_all(path.read_text()):
                with self.subTest(file=path.name, kind=one["kind"]):
                    if one["kind"] not in NO_SCHEMA:
                        kubernetes_validate.validate(one, VERSION, strict=True)

    def test_every_file_is_listed_by_its_kustomization(self):
        for path in KUBERNETES.rglob("kustomization.yaml"):
            listed = yaml.safe_load(path.read_text())
            for name in listed["resources"] + listed.get("components", []):
                self.assertTrue((path.parent / name).exists(), name)
            beside = {p.name for p in path.parent.glob("*.yaml")} - {path.name}
            self.assertEqual(beside - set(listed["resources"]), set())


class Overlay:
    """Tests of what a cluster would get from the overlay named `overlay`."""

    overlay = ""
    server = sys.argv[1]

    def setUp(self):
        if not shutil.which("kubectl"):
            self.skipTest("no kubectl: overlays not built")
        self.objects = built(self.overlay)
        self.deployment = self.objects["Deployment"]["spec"]
        self.pod = self.deployment["template"]["spec"]
        self.container = self.pod["containers"][0]
        self.flags = dict(
            arg.removeprefix("--").split("=", 1) for arg in self.container["args"]
        )

    def test_objects_follow_the_schema(self):
        for kind, one in self.objects.items():
            if kind not in NO_SCHEMA:
                kubernetes_validate.validate(one, VERSION, strict=True)

    def test_selectors_choose_the_pods_and_callers_need_no_label_of_ours(self):
        labels = self.deployment["template"]["metadata"]["labels"]
        self.assertEqual(labels, NAME)
        self.assertEqual(self.objects["Service"]["spec"]["selector"], NAME)
        policy = self.objects["NetworkPolicy"]["spec"]
        selectors = [policy["podSelector"]] + [
            self.objects[kind]["spec"]["selector"]
            for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor")
            if kind in self.objects
        ]
        for selector in selectors:
            self.assertEqual(selector, {"matchLabels": NAME})
        caller = policy["ingress"][0]["from"][0]["podSelector"]
        self.assertEqual(caller, {"matchLabels": {"attendant-client": "true"}})

    def test_ports_of_flags_probes_and_policy_agree(self):
        ports = {p["name"]: p["containerPort"] for p in self.container["ports"]}
        self.assertEqual(self.flags["listen"], f"0.0.0.0:{ports['grpc']}")
        self.assertEqual(self.flags["http"], f"0.0.0.0:{ports['metrics']}")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(self.container[probe]["grpc"]["port"], ports["grpc"])
        opened = [
            rule["ports"][0]["port"]
            for rule in self.objects["NetworkPolicy"]["spec"]["ingress"]
        ]
        self.assertEqual(opened, [ports["grpc"], ports["metrics"]])

    def test_pod_runs_unprivileged(self):
        self.assertEqual(self.pod["securityContext"]["runAsUser"], 1000)
        self.assertTrue(self.pod["securityContext"]["runAsNonRoot"])
        self.assertFalse(self.pod["automountServiceAccountToken"])
        security = self.container["securityContext"]
        self.assertTrue(security["readOnlyRootFilesystem"])
        self.assertFalse(security["allowPrivilegeEscalation"])
        self.assertEqual(security["capabilities"], {"drop": ["ALL"]})

    def test_requests_equal_limits(self):
        resources = self.container["resources"]
        self.assertEqual(resources["limits"], resources["requests"])

    def test_there_is_time_to_drain(self):
        needed = (
            self.container["lifecycle"]["preStop"]["sleep"]["seconds"]
            + int(self.flags["lame_duck_seconds"])
            + int(self.flags["drain_seconds"])
        )
        self.assertGreater(self.pod["terminationGracePeriodSeconds"], needed)

    def test_server_takes_the_flags_and_fits_the_memory_limit(self):
        flags = self.flags | {
            "listen": "127.0.0.1:0",
            "http": "127.0.0.1:0",
            "backend": "cpu",
            "lame_duck_seconds": "0",
        }
        command = [self.server, *(f"--{k}={v}" for k, v in flags.items())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            ready = server.stdout.readline()
            server.terminate()
        self.assertEqual(server.returncode, 0)
        shm = next(v for v in self.pod["volumes"] if v["name"] == "shm")
        # And a GiB for code, stacks, CUDA and what gRPC keeps.
        needed = (
            float(BOUND.search(ready)[1]) * 2**30
            + size(shm["emptyDir"]["sizeLimit"])
            + 2**30
        )
        limit = size(self.container["resources"]["limits"]["memory"])
        self.assertGreaterEqual(limit, needed)


class CpuTest(Overlay, unittest.TestCase):
    """overlays/cpu."""

    overlay = "cpu"

    def test_backend_is_the_cpu(self):
        self.assertEqual(self.flags["backend"], "cpu")


class H200Test(Overlay, unittest.TestCase):
    """overlays/h200."""

    overlay = "h200"
    gpu = "nvidia.com/gpu"

    def test_pod_has_a_gpu_and_never_falls_back(self):
        self.assertEqual(self.flags["backend"], "cuda")
        self.assertEqual(self.container["resources"]["limits"][self.gpu], "1")

    def test_metrics_are_scraped_from_a_port_that_exists(self):
        endpoint = self.objects["PodMonitor"]["spec"]["podMetricsEndpoints"][0]
        names = [port["name"] for port in self.container["ports"]]
        self.assertIn(endpoint["port"], names)


class MigTest(H200Test):
    """overlays/mig."""

    overlay = "mig"
    gpu = "nvidia.com/mig-2g.35gb"


class AutoscalingTest(unittest.TestCase):
    """components/autoscaling, in overlays of one's own."""

    def setUp(self):
        if not shutil.which("kubectl"):
            self.skipTest("no kubectl: overlays not built")

    def test_every_overlay_takes_it(self):
        metrics = (ROOT / "deploy/guides/reference.md").read_text()
        for overlay in ("cpu", "h200", "mig"):
            with self.subTest(overlay), tempfile.TemporaryDirectory() as work:
                copy = pathlib.Path(work) / "kubernetes"
                shutil.copytree(KUBERNETES, copy)
                mine = {
                    "apiVersion": "kustomize.config.k8s.io/v1beta1",
                    "kind": "Kustomization",
                    "resources": [f"../{overlay}"],
                    "components": ["../../components/autoscaling"],
                }
                (copy / "overlays/mine").mkdir()
                place = copy / "overlays/mine/kustomization.yaml"
                place.write_text(yaml.safe_dump(mine))
                objects = built(place.parent)
                scaler = objects["HorizontalPodAutoscaler"]
                kubernetes_validate.validate(scaler, VERSION, strict=True)
                target = scaler["spec"]["scaleTargetRef"]["name"]
                self.assertEqual(target, objects["Deployment"]["metadata"]["name"])
                name = scaler["spec"]["metrics"][0]["pods"]["metric"]["name"]
                self.assertIn(f"`{name}`", metrics)


if __name__ == "__main__":
    run_cases(*sys.argv[2:])

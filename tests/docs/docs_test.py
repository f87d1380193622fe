"""READMEs and guides against the real programs.

docs_test.py ATTENDANT_SERVER ATTENDANT [PYTHONPATH]: runs every snippet that is
marked to run, beside a server with its default flags; compares every generated
part, flag, metric and error code with what there is. It runs in a network
namespace of its own, so that the default ports are free. README.md has the marks.
"""

import fcntl
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import generate
import markdown
import reference_text

ROOT = markdown.ROOT
GUIDES = ROOT / "deploy/guides"
KINDS = {"sh", "python", "cpp", "c", "cmake", "text", "yaml", "proto"}
FLAG = re.compile(r"(?<![\w-])--([a-z][\w-]*)")
# Flags of other people's programs, by program.
FOREIGN = {
    "cmake": "build install component prefix target",
    "buildah": "build-arg",
    "ctest": "output-on-failure",
    "gtest": "gtest_filter",
    "docker": "gpus read-only cap-drop tmpfs",
    "git": "",
    "mypy": "strict",
    "prometheus": "config web",
    "systemctl": "now",
    "nvcc": "fmad",
    "numactl": "cpunodebind",
}
METRIC = re.compile(
    r"\battendant_\w+_(?:total|seconds|bytes|requests|ratio|watts|hertz|flops|info"
    r"|tokens|in_flight)\b"
)
RECORDED = re.compile(r"\b[a-z_]+:attendant_[\w:]+")
ERROR = re.compile(r"absl::([A-Z]\w+)Error\(")
CODE_ROW = re.compile(r"^\| `([A-Z_]+)` \|", re.M)
LINK = re.compile(r"\]\(([^)#]*)#?([^)]*)\)")
GOLDEN = re.compile(r"<!-- bytes: (\S+) -->\n(.*?)(?:\n\n|\Z)", re.S)
BYTE_ROW = re.compile(r"^\| (\d+) \| `([0-9a-f ]+)`(?: and \d+ bytes)? \|", re.M)
NAMED = re.compile(
    r"`([\w.-]+(?:/[\w.-]+)+\.[a-z]{1,5}"
    r"|(?:client|deploy|kernels|proto|server|tests)/[\w./-]+)`"
)
EXAMPLES = {"tests/x/y_test.cc", "x/y.cc", "tests/benchmark/results/NAME.json"}


def program_of(line):
    """What a command runs: its program's name, or that of the test it chooses."""
    if "-R" in line:
        return line[line.index("-R") + 1]
    words = [word for word in line if not re.match("[A-Z_]+=", word)]
    return pathlib.Path(words[words[0] == "python3"]).name


def own_network():
    """Starts this program again where all ports are free, if need be."""
    if os.environ.get("ATTENDANT_DOCS_NETWORK") != "own":
        os.environ["ATTENDANT_DOCS_NETWORK"] = "own"
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        os.execvp("unshare", ["unshare", "--net", *user, sys.executable, *sys.argv])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sH14s", b"lo", 1, b"")  # SIOCSIFFLAGS, IFF_UP
        fcntl.ioctl(any_socket, 0x8914, up)


class DocsTest(unittest.TestCase):
    """Every Markdown file of the project."""

    server, attendant = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])
    python_path = sys.argv[3] if len(sys.argv) > 3 else ""

    @classmethod
    def setUpClass(cls):
        cls.grpc, cls.http = cls.enterClassContext(generate.running(cls.server))
        cls.blocks = [b for path in markdown.files() for b in markdown.blocks(path)]

    def project_copy(self):
        """A folder that looks like the project, for snippets to write to."""
        work = self.enterContext(tempfile.TemporaryDirectory())
        for entry in ROOT.iterdir():
            (pathlib.Path(work) / entry.name).symlink_to(entry)
        return work

    def run_block(self, block):
        """Runs it as written; its output if it fails."""
        commands = {
            "sh": ["bash", "-euo", "pipefail", "-c"],
            "python": [sys.executable, "-c"],
        }
        programs = [os.path.dirname(p) for p in (self.server, self.attendant)]
        path = os.pathsep.join([*programs, os.path.dirname(sys.executable)])
        done = subprocess.run(
            [*commands[block.kind], block.text],
            cwd=self.project_copy(),
            env={
                **os.environ,
                "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": self.python_path,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, f"{block.place}\n{done.stdout}")

    def test_every_code_block_says_what_it_is(self):
        for block in self.blocks:
            with self.subTest(block.place):
                self.assertIsNotNone(block.kind, "indented: fence it, say what it is")
                self.assertIn(block.kind, KINDS)
                if block.kind in ("text", "proto", "yaml"):
                    continue
                self.assertEqual(len(block.words), 1, "run, from=, by= or not-run=?")
                mark, _, place = block.words[0].partition("=")
                self.assertIn(mark, ("run", "from", "by", "not-run"))
                if mark in ("from", "by"):
                    self.assertTrue((ROOT / place).exists(), place)

    def test_a_file_that_runs_a_block_names_its_programs(self):
        made = "\n".join(p.read_text() for p in ROOT.rglob("CMakeLists.txt"))
        for block in self.blocks:
            if block.kind != "sh" or block.words == ["run"]:
                continue
            mark, _, place = block.words[0].partition("=")
            for line in block.commands():
                with self.subTest(block.place, line=line):
                    for word in line:
                        if re.search(r"\.(py|sh)$", word) and "/" in word:
                            self.assertTrue((ROOT / word).exists(), word)
                    if line[:2] == ["cmake", "--build"]:
                        for target in line[line.index("--target") + 1 :]:
                            self.assertRegex(made, rf"\b{target}\b")
                    elif mark == "by":
                        self.assertIn(program_of(line), (ROOT / place).read_text())

    def test_snippets_run_as_written(self):
        marked = [block for block in self.blocks if block.words == ["run"]]
        self.assertGreater(len(marked), 3)
        for block in marked:
            with self.subTest(block.place):
                if block.kind == "python" and not self.python_path:
                    self.skipTest("no Python client: no .venv")
                self.run_block(block)

    def test_excerpts_are_what_is_compiled(self):
        for block in self.blocks:
            for word in block.words:
                if word.startswith("from="):
                    with self.subTest(block.place):
                        self.assertIn(block.text, (ROOT / word[5:]).read_text())

    def test_generated_parts_have_not_drifted(self):
        makers = generate.parts(self.server, self.attendant, self.http)
        seen = set()
        for path in markdown.files():
            text = path.read_text()
            seen |= {part["name"] for part in markdown.GENERATED.finditer(text)}
            self.assertEqual(text.count("<!-- generated:"), text.count("<!-- end -->"))
            with self.subTest(path.relative_to(ROOT)):
                self.assertTrue(
                    generate.filled(text, makers) == text,
                    "drifted: run tests/docs/generate.py ATTENDANT_SERVER ATTENDANT",
                )
        self.assertGreaterEqual(seen, {"forward", "server_flags", "metrics"})

    def known_flags(self):
        """Names of all flags that anything here takes, without dashes."""
        texts = [reference_text.help_text(self.server)]
        texts.append(reference_text.commands(self.attendant))
        for pattern in ("*.sh", "*.py", "*_main.cc", "*/run_*"):
            for folder in ("deploy", "tests"):
                texts += [p.read_text() for p in (ROOT / folder).rglob(pattern)]
        known = {name for text in texts for name in FLAG.findall(text)}
        return known | {n for names in FOREIGN.values() for n in names.split()}

    def test_every_flag_named_exists(self):
        known = self.known_flags() | {"help", "version"}
        for path in markdown.files():
            named = set(FLAG.findall(path.read_text()))
            with self.subTest(path.relative_to(ROOT)):
                self.assertEqual(named - known, set())

    def test_every_metric_named_exists_and_the_other_way_round(self):
        real = set(reference_text.families(self.http))
        gpu = (ROOT / "server/monitoring/gpu_metrics.cc").read_text()
        gpu += (ROOT / "server/monitoring/metrics.cc").read_text()
        real |= set(re.findall(r'"(attendant_\w+)"', gpu))
        for path in markdown.files():
            for name in METRIC.findall(path.read_text()):
                base = re.sub("_(bucket|sum|count)$", "", name)
                self.assertIn(base, real, path.relative_to(ROOT))
            recorded = (ROOT / "deploy/prometheus/recording.yml").read_text()
            for name in RECORDED.findall(path.read_text()):
                self.assertIn(f"record: {name}\n", recorded, path.relative_to(ROOT))
        reference = (GUIDES / "reference.md").read_text()
        for name in real:
            self.assertIn(f"`{name}`", reference)

    def test_every_error_code_is_documented_and_the_other_way_round(self):
        made = {"UNIMPLEMENTED"}  # gRPC's own, of methods that do not exist
        for path in (ROOT / "server").rglob("*.cc"):
            if path.parent.name == "selftest":
                continue  # no caller sees its errors
            for name in ERROR.findall(path.read_text()):
                made.add(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper())
        rows = CODE_ROW.findall((GUIDES / "callers.md").read_text())
        self.assertEqual(set(rows) - {"OK"}, made)

    def test_bytes_of_worked_examples_are_the_golden_ones(self):
        seen = 0
        for path in markdown.files():
            for name, rows in GOLDEN.findall(path.read_text()):
                text = (ROOT / "tests/golden" / name).read_text()
                golden = bytes.fromhex(re.sub("^#.*$", "", text, flags=re.M))
                shown = BYTE_ROW.findall(rows)
                self.assertEqual(len(shown), rows.count("\n") - 1, "a row is not read")
                for at, digits in shown:
                    expected = bytes.fromhex(digits)
                    found = golden[int(at) : int(at) + len(expected)]
                    self.assertEqual(found, expected, f"{path}: byte {at}")
                seen += len(shown)
        self.assertGreater(seen, 12)

    def test_every_key_of_a_policy_is_documented(self):
        source = (ROOT / "server/access/access_policy.cc").read_text()
        keys = re.search(r"CheckKeys\(list\[i\], field,\s*\{(.*?)\}", source, re.S)[1]
        guide = (GUIDES / "security.md").read_text()
        for key in re.findall(r'"(\w+)"', keys):
            self.assertRegex(guide, rf"(?m)^\| .*`{key}`.* \|")

    def test_links_lead_somewhere(self):
        for path in markdown.files():
            for target, anchor in LINK.findall(path.read_text()):
                if "://" not in target:
                    found = (path.parent / target) if target else path
                    place = f"{path.relative_to(ROOT)}: {target}#{anchor}"
                    self.assertTrue(found.exists(), place)
                    if anchor:
                        self.assertIn(anchor, markdown.anchors(found), place)

    def test_files_named_exist(self):
        for path in markdown.files():
            for name in set(NAMED.findall(path.read_text())) - EXAMPLES:
                places = [folder / name for folder in path.parents]
                places = [place for place in places if place.is_relative_to(ROOT)]
                # `server/wire_codec` is its header and its source.
                found = any(
                    p.exists() or any(p.parent.glob(f"{p.name}.*")) for p in places
                )
                self.assertTrue(found, f"{path.relative_to(ROOT)}: {name}")


if __name__ == "__main__":
    own_network()
    unittest.main(argv=sys.argv[:1], verbosity=2)

"""What lies in a .deb: files, control data, unit, configuration, programs.

package_files_test.py DEB [CASE...]: unpacks it, installs nothing. Each part is asked of
its own tool: dpkg-deb, dpkg-shlibdeps, md5sum, sh, systemd-analyze (without which the
unit is not checked, and the exit code is 77) and the packaged programs themselves.
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

ROOT = pathlib.Path(__file__).parents[2]
DEB = pathlib.Path(sys.argv[1]).resolve()
UNIT = "usr/lib/systemd/system/attendant.service"
CONFIGURATION = "etc/attendant/attendant.conf"
PROGRAMS = ("usr/bin/attendant", "usr/bin/attendant-server")
DOCUMENTS = "usr/share/doc/attendant"
NAME = re.compile(r"(?:^|, )([a-z0-9+.-]+)")


class PackageFilesTest(unittest.TestCase):
    """deploy/packaging."""

    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.root = pathlib.Path(work.name) / "root"
        self.run_tool("dpkg-deb", "--raw-extract", DEB, self.root)

    def run_tool(self, *command, **options):
        """What it prints; fails with what it says."""
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **options,
        )
        self.assertEqual(done.returncode, 0, f"{command[0]}: {done.stdout}")
        return done.stdout

    def field(self, name):
        """A line of the control file."""
        return self.run_tool("dpkg-deb", "--field", DEB, name).strip()

    def control(self, name):
        """A file of the control data."""
        return self.root / "DEBIAN" / name

    def test_every_file_is_there_and_no_other(self):
        documents = ["README.md", "CHANGELOG.md", "copyright"]
        for path in (ROOT / "deploy/guides").iterdir():
            documents.append(f"deploy/guides/{path.name}")
        wanted = {UNIT, CONFIGURATION, *PROGRAMS}
        wanted |= {f"{DOCUMENTS}/{name}" for name in documents}
        files = (path for path in self.root.rglob("*") if path.is_file())
        found = {str(path.relative_to(self.root)) for path in files}
        self.assertEqual({f for f in found if not f.startswith("DEBIAN")}, wanted)

    def test_sums_are_those_of_the_files(self):
        self.run_tool("md5sum", "--check", self.control("md5sums"), cwd=self.root)
        summed = len(self.control("md5sums").read_text().splitlines())
        self.assertGreater(summed, len(PROGRAMS))

    def test_an_upgrade_keeps_the_configuration(self):
        kept = self.run_tool("dpkg-deb", "--info", DEB, "conffiles").split()
        self.assertEqual(kept, [f"/{CONFIGURATION}"])

    def test_it_depends_on_what_the_programs_load(self):
        project = pathlib.Path(self.root) / "project/debian"
        project.mkdir(parents=True)
        (project / "control").write_text(
            "Source: attendant\n\nPackage: attendant\nArchitecture: any\n"
        )
        programs = [self.root / name for name in PROGRAMS]
        found = self.run_tool("dpkg-shlibdeps", "-O", *programs, cwd=project.parent)
        loaded = re.search("shlibs:Depends=(.*)", found)[1]
        missing = set(NAME.findall(loaded)) - set(NAME.findall(self.field("Depends")))
        self.assertEqual(missing, set())

    def test_scripts_are_scripts(self):
        for name in ("postinst", "prerm"):
            self.run_tool("sh", "-n", self.control(name))
            self.assertTrue(self.control(name).stat().st_mode & 0o100, name)

    def test_unit_starts_what_is_packaged(self):
        unit = (self.root / UNIT).read_text()
        command = re.search(r"^ExecStart=(\S+).*--config=(\S+)$", unit, re.M)
        for path in command.groups():
            self.assertTrue((self.root / path.lstrip("/")).is_file(), path)
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze: the unit is not checked")
        copy = self.root / "attendant.service"
        copy.write_text(unit.replace(command[1], str(self.root / PROGRAMS[1])))
        said = self.run_tool("systemd-analyze", "--man=no", "verify", copy)
        self.assertNotIn(str(copy), said)

    def test_server_starts_with_the_packaged_configuration(self):
        server, file = self.root / PROGRAMS[1], self.root / CONFIGURATION
        line, code = configured_server.first_line(server, file, "--log_level=error")
        self.assertEqual(code, 0)
        self.assertIn(" ready: ", line)

    def test_programs_are_of_the_packages_version(self):
        for name in PROGRAMS:
            said = self.run_tool(self.root / name, "--version")
            self.assertRegex(said, rf"\b{re.escape(self.field('Version'))}\b")


if __name__ == "__main__":
    run_cases(*sys.argv[2:])

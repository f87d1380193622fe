"""A package that is broken on purpose is noticed, a whole one is taken.

package_broken_test.py BUILD: makes the .deb of a build, asks package_files_test.py
about it, then breaks one thing at a time in copies of it and wants the case that is for
it to fail. Exit code 77, for "skipped", without the tools.
"""

import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from run_cases import run_cases

HERE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(sys.argv[1]).resolve()
NEEDS = ("cpack", "dpkg-deb", "dpkg-shlibdeps", "file")


@dataclasses.dataclass
class Break:
    """What is done to a file of the package, and the case that has to notice."""

    case: str
    file: str
    old: str | None = None  # None: the file is left out
    new: str = ""
    needs: str = "true"


CONFIGURATION = "etc/attendant/attendant.conf"
UNIT = "usr/lib/systemd/system/attendant.service"
VERIFIED = ("unit_starts_what_is_packaged", UNIT)
BREAKS = (
    Break(
        "server_starts_with_the_packaged_configuration", CONFIGURATION, "drain_", "dry_"
    ),
    Break("server_starts_with_the_packaged_configuration", CONFIGURATION),
    Break("every_file_is_there_and_no_other", UNIT),
    Break("every_file_is_there_and_no_other", "usr/bin/attendant"),
    Break("every_file_is_there_and_no_other", "usr/share/doc/attendant/copyright"),
    Break(*VERIFIED, "ExecStart=/usr/bin", "ExecStart=/usr/sbin"),
    Break(*VERIFIED, "--config=/etc/attendant", "--config=/etc/attendent"),
    Break(*VERIFIED, "Restart=on-failure", "Restart=on-fealure", "systemd-analyze"),
    Break("an_upgrade_keeps_the_configuration", "DEBIAN/conffiles"),
    Break(
        "it_depends_on_what_the_programs_load", "DEBIAN/control", "libgrpc++", "libgrpx"
    ),
    Break("scripts_are_scripts", "DEBIAN/postinst", "then", ""),
    Break("scripts_are_scripts", "DEBIAN/prerm"),
    Break("sums_are_those_of_the_files", CONFIGURATION, "drain_", "dry_"),
    Break(
        "programs_are_of_the_packages_version",
        "DEBIAN/control",
        "Version: 0",
        "Version: 9",
    ),
)


class PackageBrokenTest(unittest.TestCase):
    """deploy/packaging."""

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        configuration = BUILD / "CPackConfig.cmake"
        command = ["cpack", "--config", configuration, "-G", "DEB", "-B", cls.work]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (cls.deb,) = cls.work.glob("*.deb")

    def outcome(self, deb, *cases):
        """The exit code of package_files_test.py, and what it said."""
        done = subprocess.run(
            [sys.executable, "-B", HERE / "package_files_test.py", deb]
            + [f"PackageFilesTest.test_{case}" for case in cases],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def broken(self, one):
        """A copy of the package with that break in it."""
        root = self.work / "root"
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["dpkg-deb", "--raw-extract", self.deb, root], check=True)
        path = root / one.file
        if one.old is None:
            path.unlink()
        else:
            whole = path.read_text()
            self.assertIn(one.old, whole)
            path.write_text(whole.replace(one.old, one.new))
        deb = self.work / "broken.deb"
        pack = ["dpkg-deb", "-Znone", "--nocheck", "--build", root, deb]
        subprocess.run(pack, check=True, capture_output=True)
        return deb

    def test_a_whole_one_is_taken(self):
        code, said = self.outcome(self.deb)
        self.assertIn(code, (0, 77), said)

    def test_each_break_is_noticed(self):
        for one in BREAKS:
            with self.subTest(one.case, file=one.file, broken=one.old):
                if not shutil.which(one.needs):
                    self.skipTest(f"no {one.needs}")
                code, said = self.outcome(self.broken(one), one.case)
                self.assertNotIn(code, (0, 77), f"it was taken:\n{said}")
                self.assertIn("FAILED (failures=", said, "it failed for another reason")


if __name__ == "__main__":
    for need in NEEDS:
        if not shutil.which(need):
            print(f"skipped: no {need}")
            sys.exit(77)
    run_cases()

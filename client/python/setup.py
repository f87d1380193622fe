"""Makes attendant.v1 from the proto files while the package is built.

With ATTENDANT_CLIENT_LIBRARY set, the native library goes into the wheel, which
is then one for this platform.
"""

import os
import pathlib
import shutil

from grpc_tools import protoc
from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOS = ("attendant/v1/attention.proto", "attendant/v1/error.proto")


LIBRARY = os.environ.get("ATTENDANT_CLIENT_LIBRARY", "")


class BinaryDistribution(Distribution):
    """A wheel with a library inside is for one platform."""

    def has_ext_modules(self):
        """Says which kind of wheel this is."""
        return bool(LIBRARY)


class BuildWithStubs(build_py):
    """Adds the generated modules, and their types, to the built package."""

    def run(self):
        """Copies the package, then generates into the copy."""
        super().run()
        out = pathlib.Path(self.build_lib)
        well_known = pathlib.Path(protoc.__file__).parent / "_proto"
        code = protoc.main(
            [
                "protoc",
                f"--proto_path={ROOT / 'proto'}",
                f"--proto_path={well_known}",
                f"--python_out={out}",
                f"--pyi_out={out}",
                *PROTOS,
            ]
        )
        if code != 0:
            raise RuntimeError(f"protoc failed with {code}")
        (out / "attendant" / "v1" / "__init__.py").write_text(
            '"""Generated from proto/attendant/v1."""\n'
        )
        if LIBRARY:
            shutil.copyfile(LIBRARY, out / "attendant" / "libattendant_client.so.0")


setup(
    options={"build": {"build_base": str(ROOT / "build" / "client-python")}},
    version=(ROOT / "VERSION").read_text().strip(),
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithStubs},
)

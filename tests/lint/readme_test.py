"""Fails for a folder of the sources that has no README.md with a title."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP = ("client", "deploy", "kernels", "proto", "server", "tests")
MADE = ("__pycache__", "build", "*.egg-info", ".*")  # by tools, not by us


def folders_of(top):
    """`top` and every folder in it that is ours."""
    yield top
    for path in sorted(top.iterdir()):
        if path.is_dir() and not any(path.match(name) for name in MADE):
            yield from folders_of(path)


def problem_of(folder):
    """What is wrong with the folder; None if nothing is."""
    readme = folder / "README.md"
    if not any(path.is_file() for path in folder.iterdir()):
        return None  # of folders alone: the one above tells what they are
    if not readme.is_file():
        return "has no README.md"
    if not readme.read_text().startswith("# "):
        return "has a README.md without a title"
    return None


def main():
    folders = [ROOT, *(f for top in TOP for f in folders_of(ROOT / top))]
    found = [(folder, problem_of(folder)) for folder in folders]
    problems = [f"{f.relative_to(ROOT)} {why}" for f, why in found if why]
    assert problem_of(pathlib.Path(__file__).parent) is None, "finds too much"
    assert problem_of(pathlib.Path(sys.prefix) / "bin"), "checks nothing"
    print("\n".join(problems) or f"{len(folders)} folders, each says what it is")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

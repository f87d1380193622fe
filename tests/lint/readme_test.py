"""Fails for a folder of the sources without a README.md of one screen.

Each has a title and at most 60 lines of at most 100 columns; the front page of the
project has 120. What is longer goes to a file of its own, which the README links to.
"""

import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP = ("client", "deploy", "kernels", "proto", "server", "tests")
MADE = ("__pycache__", "build", "*.egg-info", ".*")  # by tools, not by us
LINES = 60
FRONT_PAGE_LINES = 120
COLUMNS = 100


def folders_of(top):
    """`top` and every folder in it that is ours."""
    yield top
    for path in sorted(top.iterdir()):
        if path.is_dir() and not any(path.match(name) for name in MADE):
            yield from folders_of(path)


def problem_of(folder, lines=LINES):
    """What is wrong with the folder; None if nothing is."""
    readme = folder / "README.md"
    if not any(path.is_file() for path in folder.iterdir()):
        return None  # of folders alone: the one above tells what they are
    if not readme.is_file():
        return "has no README.md"
    text = readme.read_text().splitlines()
    if not text or not text[0].startswith("# "):
        return "has a README.md without a title"
    if len(text) > lines:
        return f"has a README.md of {len(text)} lines, {lines} are a screen"
    for number, line in enumerate(text, 1):
        if len(line) > COLUMNS:
            return (
                f"has {len(line)} columns in README.md:{number}, {COLUMNS} are a screen"
            )
    return None


def check_itself():
    """Each kind of problem is found, and what is just right is not."""
    just_right = ["# x", *["-" * COLUMNS] * (LINES - 1)]
    cases = {
        "no README.md": None,
        "without a title": [],
        "a title": ["x"],
        f"of {LINES + 1} lines": [*just_right, "-"],
        f"{COLUMNS + 1} columns in README.md:3": ["# x", "", "-" * (COLUMNS + 1)],
        None: just_right,
    }
    for expected, text in cases.items():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "source.cc").touch()
            if text is not None:
                (folder / "README.md").write_text("\n".join(text) + "\n" * bool(text))
            found = problem_of(folder)
            right = found is None if expected is None else expected in (found or "")
            assert right, f"{expected!r} was wanted, {found!r} found"


def main():
    check_itself()
    folders = [f for top in TOP for f in folders_of(ROOT / top)]
    found = [(folder, problem_of(folder)) for folder in folders]
    found.append((ROOT, problem_of(ROOT, FRONT_PAGE_LINES)))
    problems = [f"{f.relative_to(ROOT)} {why}" for f, why in found if why]
    print("\n".join(problems) or f"{len(found)} folders, each says what it is")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

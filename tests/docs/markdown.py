"""Reads the project's Markdown: files, code blocks, generated parts."""

import dataclasses
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
GENERATED = re.compile(
    r"(?P<head><!-- generated: (?P<name>\w+) -->\n)(?P<body>.*?)(?P<tail><!-- end -->)",
    re.S,
)


@dataclasses.dataclass
class Block:
    """A code block; `kind` is the fence's first word, None if indented."""

    path: pathlib.Path
    line: int
    kind: str | None
    words: list
    text: str

    @property
    def place(self):
        """As editors know it."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    def commands(self):
        """The words of each command of a shell block."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, True))]


def files():
    """Every Markdown file of the project."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.md"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [ROOT / name for name in sorted(listed.stdout.split())]


def anchors(path):
    """What a link may name behind the # of this file: its headings, as GitHub does."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}


def blocks(path):
    """The code blocks of a file, fenced and indented, in order."""
    found = []
    lines = path.read_text().splitlines()
    start, blank = None, True
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if start is None:
                start = number
                continue
            words = lines[start - 1][3:].split() or [""]
            text = "\n".join(lines[start : number - 1]) + "\n"
            found.append(Block(path, start, words[0], words[1:], text))
            start = None
        elif start is None and blank and re.match(r" {4}\S", line):
            found.append(Block(path, number, None, [], line))
        blank = not line.strip()
    assert start is None, f"{path}:{start}: the fence is not closed"
    return found

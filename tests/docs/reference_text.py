"""What programs say of themselves, as text for guides: flags, metrics."""

import re
import subprocess
import urllib.request

# Of some devices only; the reference names them by hand.
OF_A_GPU = re.compile("attendant_gpu_|attendant_device_peak_flops")


def help_text(*command):
    """The command's --help."""
    done = subprocess.run(
        [*command, "--help"], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def fenced(text):
    """Text that is no Markdown."""
    return f"```text\n{text}\n```"


def commands(attendant):
    """The help of the command, and of each of its commands."""
    top = help_text(attendant)
    names = dict.fromkeys(re.findall(r"^  attendant ([a-z]+) ", top, re.M))
    return "\n\n".join(
        fenced(text) for text in [top, *(help_text(attendant, n) for n in names)]
    )


def families(http):
    """{name: (type, help)} of a live scrape."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    return {
        name: (kind, helps[name])
        for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M)
    }


def metrics(http):
    """A table of all families that every server has."""
    lines = ["| metric | type | what |", "|---|---|---|"]
    for name, (kind, what) in sorted(families(http).items()):
        if not OF_A_GPU.match(name):
            lines.append(f"| `{name}` | {kind} | {what} |")
    return "\n".join(lines)

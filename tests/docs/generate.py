"""Writes what READMEs and guides show of results and programs.

generate.py ATTENDANT_SERVER ATTENDANT: replaces every part between
`<!-- generated: NAME -->` and `<!-- end -->`. docs_test.py checks that nothing
has drifted.
"""

import contextlib
import re
import subprocess
import sys

import markdown
import measured_tables
import reference_text

READY = re.compile(r" ready: grpc=([^ ,]+) http=([^ ]+) ")


@contextlib.contextmanager
def running(server, *flags):
    """A server: its gRPC and HTTP addresses."""
    small = ["--host_pool_bytes=256M", "--max_queued_bytes=256M"]
    command = [server, *flags, *small, "--lame_duck_seconds=0", "--log_level=error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = READY.search(process.stdout.readline())
            assert found, "the server did not get ready"
            yield found.groups()
        finally:
            process.terminate()


def parts(server, attendant, http):
    """{name: function that makes the part's text}."""
    return {
        **measured_tables.TABLES,
        "server_flags": lambda: reference_text.fenced(reference_text.help_text(server)),
        "commands": lambda: reference_text.commands(attendant),
        "metrics": lambda: reference_text.metrics(http),
    }


def filled(text, makers):
    """`text` with every generated part as it should be."""
    return markdown.GENERATED.sub(
        lambda part: part["head"] + makers[part["name"]]() + "\n" + part["tail"], text
    )


def main():
    """Rewrites all files."""
    server, attendant = sys.argv[1:3]
    anywhere = ("--listen=127.0.0.1:0", "--http=127.0.0.1:0")
    with running(server, *anywhere) as (_, http):
        makers = parts(server, attendant, http)
        for path in markdown.files():
            before = path.read_text()
            after = filled(before, makers)
            if after != before:
                path.write_text(after)
                print(f"generate: {path.relative_to(markdown.ROOT)}")


if __name__ == "__main__":
    main()

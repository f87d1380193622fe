"""Runs a command against an attendant-server of its own.

with_server.py SERVER COMMAND [ARGUMENT...]: starts SERVER on a free port, runs
COMMAND with {target} in its arguments replaced, and stops the server. Exits
with COMMAND's code, or with 1 if the server did not drain cleanly.
"""

import re
import subprocess
import sys

READY = re.compile(r" ready: grpc=([^ ,]+)")


def ready_target(process):
    """The address the server prints once it serves."""
    for line in process.stdout:
        found = READY.search(line)
        if found:
            return found[1]
    sys.exit(f"the server ended with {process.wait()} before it was ready")


def main():
    """Runs the command line."""
    server, *command = sys.argv[1:]
    flags = [
        "--listen=127.0.0.1:0",
        "--http=",
        "--host_pool_bytes=256M",
        "--max_queued_bytes=256M",
        "--lame_duck_seconds=0",
    ]
    with subprocess.Popen(
        [server, *flags], stdout=subprocess.PIPE, text=True
    ) as process:
        target = ready_target(process)
        command = [argument.replace("{target}", target) for argument in command]
        code = subprocess.run(command, check=False).returncode
        process.terminate()
        if process.wait(60) != 0:
            sys.exit(f"the server drained with {process.returncode}")
    sys.exit(code)


if __name__ == "__main__":
    main()

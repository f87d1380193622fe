"""A server that is started with a configuration file of deploy/."""

import subprocess


def first_line(server, configuration, *flags):
    """What the server says first, and its exit code: it is told to stop then.

    It listens on free ports, whatever the file says.
    """
    command = [
        server,
        f"--config={configuration}",
        "--listen=127.0.0.1:0",
        "--http=127.0.0.1:0",
        "--lame_duck_seconds=0",
        *flags,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.terminate()
    return line, process.returncode

"""How the tests of this folder end: what was skipped is said aloud."""

import sys
import unittest


def run_cases(*names):
    """Runs the script's cases, or those named; exits 0, 1, or 77 for "skipped"."""
    program = unittest.main(argv=[sys.argv[0], *names], exit=False)
    for _, why in program.result.skipped:
        print(f"skipped: {why}")
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if program.result.skipped else 0)

#!/usr/bin/env python3
"""Checks the machine code of the sm90 kernels that use warpgroup products.

usage: sass_check.py [--cuobjdump PATH] OBJECT...

In the hot loop (the smallest loop that holds both products of a key block):
no spill (LDL, STL), no R2UR (descriptors stay in uniform registers), and the
exponentials stand between the wait for QK and the wait for PV, so that they
overlap with PV. Exits 1 on a violation, 77 (skipped) without cuobjdump.
"""
import argparse
import re
import shutil
import subprocess
import sys

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);")
FUNCTION = re.compile(r"Function : (\S+)")
BRANCH = re.compile(r"\bBRA(?:\.\S+)?\s+(?:.*,\s*)?`?\(?(?:\.L_x_\d+|0x([0-9a-f]+))")


def functions(text):
    name, body = None, []
    for line in text.splitlines():
        match = FUNCTION.search(line)
        if match:
            if name:
                yield name, body
            name, body = match.group(1), []
            continue
        match = INSTRUCTION.match(line)
        if match:
            body.append((int(match.group(1), 16), match.group(2)))
    if name:
        yield name, body


def hot_loop(body):
    """The smallest backward-branch range with the most products."""
    best, best_key = [], (0, 0)
    for address, text in body:
        match = BRANCH.search(text)
        if not match or match.group(1) is None:
            continue
        target = int(match.group(1), 16)
        if target >= address:
            continue
        loop = [i for i in body if target <= i[0] <= address]
        key = (sum("HGMMA" in i[1] for i in loop), -len(loop))
        waits = sum("WARPGROUP.DEPBAR" in i[1] for i in loop)
        if waits == 2 and key > best_key:
            best, best_key = loop, key
    return best


def is_checked(name):
    """Decode at head size 256 has no registers left for its descriptors."""
    return "PrefillKernel" in name or (
        "DecodeKernel" in name and "DecodeShapeILi256E" not in name)


def check(name, body):
    loop = hot_loop(body)
    if not loop:
        return [f"{name}: no hot loop found"]
    texts = [text for _, text in loop]
    count = lambda word: sum(word in text for text in texts)
    waits = [i for i, text in enumerate(texts) if "WARPGROUP.DEPBAR" in text]
    exponentials = [i for i, text in enumerate(texts) if "MUFU.EX2" in text]
    between = sum(waits[0] < i < waits[1] for i in exponentials)
    print(f"{name[:150]}\n  loop {len(loop)} instructions, HGMMA {count('HGMMA')}"
          f", MUFU {len(exponentials)} ({between} between the waits), R2UR "
          f"{count('R2UR')}, spills {count('LDL') + count('STL')}; whole "
          f"kernel {len(body)}, spills "
          f"{sum(('LDL' in t) or ('STL' in t) for _, t in body)}")
    errors = []
    if count("LDL") + count("STL"):
        errors.append(f"{name}: spill in the hot loop")
    if count("R2UR"):
        errors.append(f"{name}: {count('R2UR')} R2UR in the hot loop")
    if between * 10 < len(exponentials) * 8:
        errors.append(f"{name}: only {between} of {len(exponentials)} "
                      "exponentials overlap with PV")
    return errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("objects", nargs="+")
    args = parser.parse_args()
    tool = shutil.which(args.cuobjdump)
    if tool is None:
        print("SKIPPED: cuobjdump not found (PyPI: nvidia-cuda-cuobjdump)")
        return 77
    errors = []
    for path in args.objects:
        text = subprocess.run([tool, "-sass", path], check=True,
                              capture_output=True, text=True).stdout
        for name, body in functions(text):
            if is_checked(name):
                errors += check(name, body)
    for error in errors:
        print("error:", error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

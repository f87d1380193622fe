"""Adds what a libFuzzer run did to a results file.

fuzz_record.py TARGET LOG CORPUS SECONDS RESULTS
"""
import datetime
import json
import os
import pathlib
import platform
import re
import sys


def last(pattern, text):
    """The number that the pattern's last match holds."""
    found = re.findall(pattern, text)
    return int(found[-1]) if found else None


def main(target, log, corpus, seconds, results):
    text = pathlib.Path(log).read_text(errors="replace")
    cpu = re.search(r"model name\s*: (.*)",
                    pathlib.Path("/proc/cpuinfo").read_text())
    files = list(pathlib.Path(corpus).iterdir())
    row = {
        "seconds": int(seconds),
        "executions": last(r"number_of_executed_units: (\d+)", text),
        "executions_per_second": last(r"average_exec_per_sec:\s+(\d+)", text),
        "coverage_edges": last(r"cov: (\d+)", text),
        "peak_resident_mib": last(r"peak_rss_mb:\s+(\d+)", text),
        "corpus_files": len(files),
        "corpus_bytes": sum(file.stat().st_size for file in files),
        "findings_open": len(re.findall(r"SUMMARY: |runtime error:", text)),
        "machine": f"{cpu.group(1) if cpu else 'unknown CPU'}, "
                   f"{os.cpu_count()} cores, Linux {platform.release()}",
        "date": datetime.datetime.now(datetime.timezone.utc)
                        .strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": os.environ.get("ATTENDANT_COMMIT", ""),
        "command": f"tests/fuzz/run_fuzz.sh build-fuzz {seconds} {target}",
    }
    path = pathlib.Path(results)
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows[target] = row
    path.write_text(json.dumps(rows, indent=1) + "\n")


main(*sys.argv[1:])

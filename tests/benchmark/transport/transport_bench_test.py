"""Runs transport_bench.py small, and looks at what it wrote; and turns.py.

    transport_bench_test.py BUILD
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import turns

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "transport_bench.py"
KEYS = {"section", "door", "layout", "batch", "seqlen", "num_heads", "head_dim",
        "connections", "p50_ms", "p99_ms", "gbps", "commit"}
OURS = {"unary", "stream", "striped", "shm"}
SELDOM = {"flight_pyarrow", "python_grpcio"}
PEERS = {"flight_pyarrow", "plain_protobuf", "python_grpcio"}
FLOORS = {"empty_call_tcp", "empty_call_unix", "launch_and_copy"}
FLIGHT = "tests/benchmark/transport/transport_flight_peer"
EXPECTED = {"large": OURS | PEERS, "sustained": OURS | {"flight_pyarrow"},
            "small": OURS | PEERS, "smallest": OURS | {"empty_call_tcp"},
            "idle": {"unary", "shm"}, "memory": set(), "attack": {"unary_beside_unary"}}


def check_turns(row):
    rounds = row["rounds_ms"]
    assert len(rounds) == (1 if row["door"] in SELDOM else 2), row
    assert abs(row["p50_ms"] - sum(rounds) / len(rounds)) < 1e-3, row
    if "answered" in row and row["door"] not in PEERS:
        assert row["answered"] == 20, row


def check(rows, meta, build):
    if (build / FLIGHT).exists():
        assert "flight" in {row["door"] for row in rows}, meta["missing"]
    for section, doors in EXPECTED.items():
        there = {row["door"] for row in rows if row["section"] == section}
        assert doors <= there, f"{section}: {doors - there}: {meta['missing']}"
    for row in rows:
        missing = KEYS - set(row)
        assert row["door"] in FLOORS or row["section"] == "memory" or (
            not missing), f"{row}: no {missing}"
        assert 0 < row["p50_ms"] <= row["p99_ms"], row
        assert row.get("failed", 0) == 0 or row["section"] == "attack", row
        if row["section"] in ("small", "smallest"):
            check_turns(row)
    findings = meta["findings"]
    assert findings["attack_unary"]["under_bound"], findings
    assert findings["attack_unary"]["served_meanwhile"] > 0, findings
    assert findings["smallest"]["ratio"] > 0, findings
    assert findings["memory"]["settled_bytes"] > 0, findings
    assert set(meta["seconds"]) >= set(EXPECTED), meta


def check_turns_go_on_without_who_fails():
    order = []

    def caller(name, *p50s):
        left = list(p50s)

        def measure():
            order.append(name)
            return {"p50_ms": left.pop(0), "failed": 1} if left else None

        return measure

    found = turns.by_turns({"a": (caller("a", 1, 5, 3), 1),
                            "seldom": (caller("seldom", 4, 8), 2),
                            "out": (caller("out", 1), 1)}, 3)
    assert order == ["a", "seldom", "out", "a", "out", "a", "seldom"], order
    assert set(found) == {"a", "seldom"}, found
    assert turns.merged(list(found["a"].values())) == {
        "p50_ms": 3, "failed": 3, "rounds_ms": [1, 5, 3]}, found
    # 4/(1+1) and 8/(3+3), the middle of both.
    floor = found["a"]
    assert turns.ratio(found["seldom"], [floor, floor]) == (2 + 8 / 6) / 2


def main():
    check_turns_go_on_without_who_fails()
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([sys.executable, str(SCRIPT), "--tiny",
                        f"--build={sys.argv[1]}", f"--out={out}",
                        "--name=tiny"], check=True)
        check(json.loads(pathlib.Path(out, "tiny.json").read_text()),
              json.loads(pathlib.Path(out, "tiny.meta.json").read_text()),
              pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()

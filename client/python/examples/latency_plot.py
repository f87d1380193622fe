"""Latency over the length of the text: python latency_plot.py HOST:PORT [FILE.svg].

Medians of the whole call and of the server's part, as an SVG picture.
"""

import math
import statistics
import sys
import time

import numpy as np

import attendant

LENGTHS = (32, 64, 128, 256, 512)
CALLS = 7
WIDTH, HEIGHT, EDGE = 480, 320, 50


def measure(client: attendant.Client, tokens: int) -> tuple[float, float]:
    """Median milliseconds: of the call, and of the server's part of it."""
    x = np.random.default_rng(0).standard_normal((1, tokens, 8, 64), np.float32)
    calls, served = [], []
    for _ in range(CALLS):
        begin = time.perf_counter()
        result = client.attend(x, x, x, causal=True, timeout=60)
        calls.append((time.perf_counter() - begin) * 1e3)
        served.append(result.stages.total_ns / 1e6)
    return statistics.median(calls), statistics.median(served)


def picture(series: dict[str, list[float]]) -> str:
    """Lines over LENGTHS; both axes are logarithmic."""
    values = [value for line in series.values() for value in line]
    low, high = math.log(min(values)), math.log(max(values) * 1.1)

    def place(number: int, value: float) -> str:
        x = EDGE + number * (WIDTH - 2 * EDGE) / (len(LENGTHS) - 1)
        y = HEIGHT - EDGE - (math.log(value) - low) / (high - low) * (HEIGHT - 2 * EDGE)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">']
    for color, (name, line) in zip(("#1b6", "#36c"), series.items()):
        points = " ".join(place(n, value) for n, value in enumerate(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
        x, y = place(len(line) - 1, line[-1]).split(",")
        parts.append(
            f'<text x="{x}" y="{float(y) - 6:.1f}" text-anchor="end" '
            f'font-size="11" fill="{color}">{name} {line[-1]:.2f} ms</text>'
        )
    for n, tokens in enumerate(LENGTHS):
        x = place(n, values[0]).split(",")[0]
        parts.append(
            f'<text x="{x}" y="{HEIGHT - EDGE / 2}" text-anchor="middle" '
            f'font-size="11">{tokens} tokens</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Measures, prints and draws."""
    series: dict[str, list[float]] = {"call": [], "server": []}
    with attendant.Client(sys.argv[1]) as client:
        for tokens in LENGTHS:
            call, served = measure(client, tokens)
            series["call"].append(call)
            series["server"].append(served)
            print(f"{tokens:5} tokens: {call:.2f} ms, {served:.2f} of it the server's")
    file = sys.argv[2] if len(sys.argv) > 2 else "latency.svg"
    with open(file, "w", encoding="utf-8") as drawing:
        drawing.write(picture(series))
    print(f"drawn in {file}")


if __name__ == "__main__":
    main()

"""Measuring by turns: what a machine does meanwhile, it does to all alike."""

import statistics

SUMS = ("answered", "failed")


def middle(values):
    """The median of numbers; of objects, key by key; of others, the first."""
    first = values[0]
    if isinstance(first, dict):
        keys = set(first).intersection(*values)
        return {key: middle([value[key] for value in values])
                for key in first if key in keys}
    if isinstance(first, (int, float)) and not isinstance(first, bool):
        return statistics.median(values)
    return first


def merged(rows):
    """One row of a caller's rounds: medians, and each round's own p50_ms."""
    row = middle(rows)
    row.update((key, sum(one[key] for one in rows))
               for key in SUMS if key in row)
    row["rounds_ms"] = [round(one["p50_ms"], 4) for one in rows]
    return row


def by_turns(callers, rounds):
    """`callers`: name to (measure, every), who is due every so many rounds.

    `measure()` gives a row, or None, whereupon its caller is out. Returns each
    caller's rows by round.
    """
    callers, found = dict(callers), {name: {} for name in callers}
    for turn in range(rounds):
        for name, (measure, every) in list(callers.items()):
            if turn % every:
                continue
            row = measure()
            if row is None:
                del callers[name], found[name]
            else:
                found[name][turn] = row
    return found


def ratio(rows, floors):
    """The median of a row's p50 over the floors' sum in the same round."""
    turns = set(rows).intersection(*floors)
    return statistics.median(
        rows[turn]["p50_ms"] / sum(floor[turn]["p50_ms"] for floor in floors)
        for turn in turns)

"""Runs of windows at which a condition held, as a list of first and last window ends (seconds since 1970).
Windows come in order when they are looked at first, and in any order when late rows have them looked at once
more. Pure."""

Run = tuple[int, int]
Runs = tuple[Run, ...]


def with_window(runs: Runs, end: int, every: int) -> Runs:
    """The runs, one window longer: neighbours are joined."""
    first = last = end
    others = []
    for run in runs:
        if run[0] - every <= end <= run[1] + every:
            first, last = min(first, run[0]), max(last, run[1])
        else:
            others.append(run)
    return tuple(sorted([*others, (first, last)]))


def without_window(runs: Runs, end: int, every: int) -> Runs:
    """The runs without a window: one that holds it is cut in two."""
    left = []
    for first, last in runs:
        if not first <= end <= last:
            left.append((first, last))
            continue
        if first < end:
            left.append((first, end - every))
        if end < last:
            left.append((end + every, last))
    return tuple(left)


def firing(runs: Runs, pending_s: int) -> Runs:
    """The part of each run at which the condition had held for long enough."""
    return tuple((first + pending_s, last) for first, last in runs if last - first >= pending_s)


def since(runs: Runs, before: int) -> Runs:
    """The runs that do not end before a time."""
    return tuple(run for run in runs if run[1] >= before)

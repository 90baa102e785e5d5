"""How the C library deals with memory, where it is glibc (mallopt(3)); any other is left as it is."""

import ctypes
import os
from collections.abc import Mapping
from enum import IntEnum


class Malloc(IntEnum):
    """What can be set, by its number in malloc.h."""

    TRIM_THRESHOLD = -1
    MMAP_THRESHOLD = -3
    ARENA_MAX = -8


# By default eight for each core, of which each thread takes one: what one has freed the others do not get,
# and the process keeps it. With one for each core no two that run have to wait for each other for long.
ARENAS_MIN = 2


def set_malloc(options: Mapping[Malloc, int]) -> None:
    """Sets these options for this process."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in options.items():
            mallopt(int(option), value)


def share_arenas() -> None:
    """Has the threads of a service that runs for months share their memory; to be called before there are
    any."""
    set_malloc({Malloc.ARENA_MAX: max(ARENAS_MIN, len(os.sched_getaffinity(0)))})

"""The partition that a producer should send a tenant's records to, so that the rows of a table come through
one worker of one node: fewer commits for each table, fewer and larger files.

It is what Kafka's own clients do with the tenant as the message key: murmur2, without the sign bit, modulo
the number of partitions. Java's producer does so by default (and with it Kafka Connect), librdkafka and what
is built on it (Vector, Fluent Bit, the clients of Python and .NET) with `partitioner=murmur2_random`. The
default of librdkafka is CRC32 (`consistent_random`), which Java does not have. So most producers need a key
and no code.

The rows of a hot tenant are more than one worker takes. They go to so many partitions in a row, which are
read by different workers and nodes.
"""

_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
_MASK = 0xFFFFFFFF


def partition_of(tenant: str, partitions: int, *, spread: int = 1, turn: int = 0) -> int:
    """Return the partition, from 0, of a record of this tenant in a topic of so many.

    `spread`: over how many partitions the tenant goes, 1 unless it is a hot one. `turn` says which of them: a
    counter of its records, or a hash of what has to keep its order. Raises ValueError where there are no
    partitions, or fewer than it is to be spread over.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    if not 1 <= spread <= partitions:
        raise ValueError(f"a tenant is spread over 1 to {partitions} partitions, not {spread}")
    return ((murmur2(tenant.encode()) & 0x7FFFFFFF) + turn % spread) % partitions


def murmur2(data: bytes) -> int:
    """Return MurmurHash2 of 32 bits (by Austin Appleby) with the seed that Kafka's clients use, unsigned."""
    value, whole = (_SEED ^ len(data)) & _MASK, len(data) & ~3
    for at in range(0, whole, 4):
        block = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        block = (block ^ block >> _R) * _M & _MASK
        value = (value * _M & _MASK) ^ block
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15

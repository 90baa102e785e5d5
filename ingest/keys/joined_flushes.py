"""Steps of several flushes of one table as those of one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ingest.keys.keyed_steps import KeyedSteps, join_steps, pack_steps, unpack_steps
from ingest.model.link import NAMED_MAX, KeyedRows, WrittenFlush
from lake.marks import TopicPartition


def join_flushes(flushes: Sequence[WrittenFlush]) -> tuple[KeyedSteps, tuple[TopicPartition, ...]]:
    """The steps of all flushes, their files numbered as they follow each other, and the topic-partitions that
    they count by. At least one of them has steps."""
    named = {p for flush in flushes if flush.keyed is not None for p in flush.keyed.partitions}
    partitions = tuple(sorted(named))
    numbers = {partition: at for at, partition in enumerate(partitions)}
    parts, first_file = [], 0
    for flush in flushes:
        if flush.keyed is not None:
            sources = [numbers[partition] for partition in flush.keyed.partitions]
            parts.append((unpack_steps(flush.keyed.steps), sources, first_file))
        first_file += len(flush.files)
    steps = join_steps(parts)
    for flush in flushes:
        for partition, offset in flush.keyed.truncated_at.items() if flush.keyed is not None else ():
            before = (steps.source == numbers[partition]) & (steps.offset < offset)
            steps = replace(steps, truncated=steps.truncated | before)
    return steps, partitions


def join_keyed(flushes: Sequence[WrittenFlush]) -> KeyedRows | None:
    """What several flushes do to rows, as one does it; None where none of them does anything. Raises
    ValueError where they do not agree on the key."""
    keyed = [flush.keyed for flush in flushes if flush.keyed is not None]
    if not keyed:
        return None
    if any(each.key != keyed[0].key for each in keyed):
        raise ValueError("flushes of one table have different keys")
    steps, partitions = join_flushes(flushes)
    counts, truncated_at = Counter[str](), dict[TopicPartition, int]()
    for each in keyed:
        counts.update(each.changes)
        for partition, offset in each.truncated_at.items():
            truncated_at[partition] = max(offset, truncated_at.get(partition, 0))
    return KeyedRows(
        keyed[0].key,
        partitions,
        pack_steps(steps.to_arrow()),
        truncated_at,
        keyed[0].buckets,
        dict(counts),
        tuple(name for each in keyed for name in each.in_several)[:NAMED_MAX],
        any(each.has_replayed for each in keyed),
    )

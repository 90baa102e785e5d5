"""The file of a day or month that is past its table's retention in part, written anew without those rows: a
merge of this one file, by the same code and with the same proofs."""

from dataclasses import replace

from lake.data_file import ROW_LINEAGE
from lake.table_layout import US_PER_HOUR
from optimize.bins import to_group
from optimize.merge_job import FileLayout, MergeJob
from optimize.retention import Expired
from optimize.table_view import TableView


def cut_job(view: TableView, expired: Expired, layout: FileLayout) -> MergeJob:
    """What writes the files of `expired.cut` anew."""
    state = view.state
    known = view.partitions({file.span for file in expired.cut if file.span is not None})
    groups = tuple(
        replace(
            to_group(file.span, (file,), known[file.span].facts, state.sequence_number, keeps_places=True),
            kept_from_us=expired.first_hour_kept * US_PER_HOUR,
        )
        for file in expired.cut
        if file.span is not None
    )
    return MergeJob(
        view.name,
        state.location,
        state.schema.json,
        groups,
        layout,
        state.table_location,
        keeps_row_ids=state.version >= ROW_LINEAGE,
    )

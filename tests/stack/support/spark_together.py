"""The tests with a Spark session in one process: one takes ten seconds of a processor before it is warm."""

from xdist.scheduler import LoadFileScheduling

FILES = frozenset(
    {
        "tests/catalog/test_dirty_by_engines.py",
        "tests/catalog/test_engines.py",
        "tests/changes/test_engines_agree.py",
        "tests/query/test_cold_in_engines.py",
        "tests/query/test_core_files.py",
        "tests/query/test_deletes_in_engines.py",
        "tests/query/test_encodings_in_engines.py",
        "tests/query/test_filtered_files.py",
        "tests/security/test_format_versions.py",
    }
)
SCOPE = "tests with a Spark session"


class SparkTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files go to the process that is free, those with a Spark session to one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SCOPE if file in FILES else file

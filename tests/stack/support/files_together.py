"""The files of tests that share what takes long to start: those that use the same run in one process."""

from xdist.scheduler import LoadFileScheduling

# By the fixture. A Spark session takes ten seconds of a processor before it is warm, another Trino as much.
FILES = {
    "spark": frozenset(
        {
            "tests/catalog/test_access.py",
            "tests/catalog/test_dirty_by_engines.py",
            "tests/catalog/test_engines.py",
            "tests/changes/test_engines_agree.py",
            "tests/changes/test_flink.py",
            "tests/query/test_cold_in_engines.py",
            "tests/query/test_core_files.py",
            "tests/query/test_deletes_in_engines.py",
            "tests/query/test_encodings_in_engines.py",
            "tests/query/test_filtered_files.py",
            "tests/security/test_format_versions.py",
        }
    ),
    "ruled": frozenset(
        {
            "tests/security/test_letters_table.py",
            "tests/security/test_sql_views.py",
            "tests/security/test_trino_users.py",
        }
    ),
}
SCOPES = {file: f"tests with the fixture {fixture}" for fixture, files in FILES.items() for file in files}


class FilesTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files go to the process that is free, those that share a fixture of `FILES` to one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SCOPES.get(file, file)

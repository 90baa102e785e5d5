"""The source of the change streams: a database of PostgreSQL, in which random transactions go on in a thread
of their own."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any

import psycopg

from tests.faults.streams.source_table import Key, SourceTable
from tests.stack.support.waiting import wait_for

STATEMENTS_MAX = 6
ROLLED_BACK, OVERLAPPING = 0.05, 0.1
# Shares of all transactions after which a table is emptied, or its schema changes.
EMPTIED_EVERY, ALTERED_EVERY = 0.07, 0.04
BEHIND_MAX_S = 1.0
SLOWER = 15
LAST = "last_of_all"
TABLES: Sequence[dict[str, Any]] = (
    {"name": "orders", "has_large": True, "moves": True, "truncates": True},
    {"name": "people", "partitions": 3, "moves": True, "is_composite": True},
    {"name": "events", "has_large": True, "moves": True, "grows": True},
    {"name": "hot_items", "partitions": 2, "keys_max": 12},
    {"name": "accounts", "partitions": 2, "moves": True, "grows": True, "keys_max": 3_000},
)


class SourceDatabase:
    """Makes the tables, and so many transactions at a rate. As a context manager it ends its thread."""

    def __init__(self, address: str, name: str, transactions: int, per_s: float, seed: int) -> None:
        self.tables = [SourceTable(**options) for options in TABLES]
        self.name, self.transactions, self.made = name, transactions, 0
        self.limit = transactions  # beyond it they come slowly
        self._chance, self._per_s = random.Random(seed), per_s
        server = address.replace("+psycopg", "")
        with closing(psycopg.connect(server, autocommit=True)) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        self.address = f"{server.rsplit('/', 1)[0]}/{name}"
        # Both connections take a whole transaction as one text.
        self._first, self._second = self._connect(), self._connect()
        self._run(self._first, "".join(table.create() for table in self.tables))
        self._run(self._first, f"CREATE TABLE {LAST} (id integer PRIMARY KEY)")
        for _ in range(50):
            self._run(self._first, "".join(t.statement(self._chance, set()) for t in self.tables))
        self._stop, self._failed = threading.Event(), list[Exception]()
        self._thread = threading.Thread(target=self._work, name="source", daemon=True)
        # Before its rows are read for the first time no schema changes: the connector reads tables by the
        # columns that they had a moment before, fails, and begins anew ten seconds later; what is deleted
        # meanwhile nobody is told.
        self.is_followed = False
        self._waiting: deque[Callable[[], None]] = deque()

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.address, autocommit=True, cursor_factory=psycopg.ClientCursor)
        connection.execute("SET synchronous_commit = off")
        return connection

    def __enter__(self) -> "SourceDatabase":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30.0)

    def close(self) -> None:
        """Ends its connections."""
        self._first.close()
        self._second.close()

    @property
    def topics(self) -> dict[str, int]:
        """Tables, with the partitions of their topics."""
        return {**{table.name: table.partitions for table in self.tables}, LAST: 1}

    def wait_for(self, transactions: int, timeout_s: float) -> None:
        """Returns when so many transactions were made."""

        def reached() -> bool:
            if self._failed:
                raise AssertionError(f"the source failed: {self._failed[0]!r}") from self._failed[0]
            return self.made >= min(transactions, self.transactions)

        wait_for(reached, timeout_s, f"{transactions} transactions of the source")

    def rows(self, table: SourceTable) -> list[tuple[Any, ...]]:
        """The rows that a table has now."""
        return self._first.execute(table.source_query().encode()).fetchall()

    def set_last(self) -> None:
        """Makes the transaction after which there is none."""
        self._run(self._first, f"INSERT INTO {LAST} VALUES (1)")

    # ---- transactions

    def _work(self) -> None:
        next_s = time.monotonic()
        try:
            while self.made < self.transactions and not self._stop.is_set():
                self._transaction()
                self.made += 1
                apart_s = (1 if self.made < self.limit else SLOWER) / self._per_s
                next_s = max(next_s + apart_s, time.monotonic() - BEHIND_MAX_S)
                self._stop.wait(max(0.0, next_s - time.monotonic()))
        except (psycopg.Error, AssertionError, LookupError, ValueError) as error:
            self._failed.append(error)

    def _transaction(self) -> None:
        emptied = max(1, round(self.transactions * EMPTIED_EVERY))
        altered = max(1, round(self.transactions * ALTERED_EVERY))
        if self.made % altered == altered - 1:
            self._waiting.append(self._alter)
        if self.made == self.transactions // 2:
            self._waiting.append(self._widen_key)
        if self.made % emptied == emptied - 1:
            self._empty()
        elif self._waiting and self.is_followed:
            self._waiting.popleft()()
        elif self._chance.random() < OVERLAPPING:
            self._overlapping()
        else:
            self._one()

    def _empty(self) -> None:
        table = self._chance.choice([table for table in self.tables if table.truncates])
        before = self._statements(None)
        table.keys.clear()
        again = "".join(table.statement(self._chance, set()) for _ in range(3))
        self._run(self._first, f"BEGIN;{before}TRUNCATE {table.name};{again}COMMIT;")

    def _alter(self) -> None:
        table = self._chance.choice([table for table in self.tables if table.grows])
        self._run(self._first, table.alter(self._chance))

    def _widen_key(self) -> None:
        """Of one partition: the message key, with its schema, is another one from then on."""
        table = next(table for table in self.tables if table.grows and table.partitions == 1)
        self._run(self._first, table.widen_key())

    def _one(self) -> None:
        known = [set(table.keys) for table in self.tables]
        statements = self._statements(None)
        if self._chance.random() < ROLLED_BACK:
            for table, keys in zip(self.tables, known, strict=True):
                table.keys = keys
            self._run(self._first, f"BEGIN;{statements}ROLLBACK;")
        else:
            self._run(self._first, f"BEGIN;{statements}COMMIT;")

    def _overlapping(self) -> None:
        """A transaction is made while another one is open: its changes lie behind those in the log, and are
        sent first."""
        locked: dict[str, set[Key]] = {table.name: set() for table in self.tables}
        self._run(self._first, f"BEGIN;{self._statements(locked)}")
        self._run(self._second, f"BEGIN;{self._statements(locked)}COMMIT;")
        self._run(self._first, f"{self._statements(locked)}COMMIT;")

    def _statements(self, locked: dict[str, set[Key]] | None) -> str:
        """Some statements; with `locked` they leave the keys alone that it has, and add theirs."""
        made = []
        for _ in range(self._chance.randint(1, STATEMENTS_MAX)):
            table = self._chance.choice(self.tables)
            made.append(table.statement(self._chance, set() if locked is None else locked[table.name]))
        return "".join(made)

    @staticmethod
    def _run(connection: psycopg.Connection[Any], statements: str) -> None:
        connection.execute(statements.encode())

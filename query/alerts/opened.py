"""What alerts need, opened once per process: the store of rules, which every server has, and the evaluator,
where it is wanted."""

import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.errors import RefusedError, SettingsError
from lake.lease import Lease, LeaseTimes
from lake.limits import Bound, Limit
from lake.settings import QuerySettings
from lake.tenant import TenantId
from query.alerts.delivery import Delivery
from query.alerts.evaluator import Evaluator, EvaluatorParts, EvaluatorTimes
from query.alerts.round import Surroundings
from query.alerts.rule import Rule
from query.alerts.rule_store import RuleStore, StoredRule
from query.alerts.senders import Alertmanager, Webhooks
from query.alerts.tables import LoadedTables
from query.alerts.targets import target_of
from query.files.file_index import FileIndex
from query.model.problem import refuse
from query.model.search_usage import SearchUsage
from query.model.table_view import TableSource
from query.search.lag import LagSource
from query.search.search import Searcher

LEASE = "query.alerts"
LASTING_S_MIN, RESENDS_MISSED = 300.0, 4


@dataclass(frozen=True)
class Alerts:
    """One process's. `evaluator` None: another server evaluates, or none."""

    store: RuleStore
    work_list: CatalogClient
    around: Surroundings
    evaluator: Evaluator | None
    settings: QuerySettings

    def rules(self, tenant: TenantId) -> Iterator[StoredRule]:
        """A tenant's rules. Raises RefusedError where nobody keeps rules."""
        if not self.work_list.has_extras:
            raise RefusedError(
                "beside this catalog rules of alerts need Firn's work list: run `python -m catalog serve "
                "--control` and set control.uri"
            )
        yield from self.store.rules(tenant)

    def changed(self) -> None:
        """Rules were changed here; other servers see it within seconds."""
        if self.evaluator is not None:
            self.evaluator.wake()

    def stop(self) -> None:
        """Ends what runs."""
        if self.evaluator is not None:
            self.evaluator.stop()

    def check(self, rule: Rule) -> None:
        """Raises BadRequestError where this server does not take a rule."""
        wanted = self.settings.alerts
        if rule.every < wanted.every_min_s:
            raise refuse(
                f"rule {rule.name!r}: every {rule.every} s is more often than alerts.every_min_s "
                f"allows ({wanted.every_min_s:g})"
            )
        for url in rule.webhooks:
            try:
                target_of(url, wanted.webhook_targets)
            except RefusedError as error:
                raise refuse(f"rule {rule.name!r}: {error}") from error
        if rule.webhooks and wanted.webhook_secret is None:
            raise refuse(
                f"rule {rule.name!r}: webhooks are signed, and the operator has set no alerts.webhook_secret"
            )


@dataclass(frozen=True, slots=True)
class Searching:
    """What the process searches with: `searcher_of` gives a searcher over tables, `limits_of` what a
    namespace may use, `usage` counts what it has used."""

    index: FileIndex
    searcher_of: Callable[[TableSource], Searcher]
    lag: LagSource
    usage: SearchUsage
    limits_of: Callable[[str], Mapping[Limit, Bound]]


def open_alerts(
    settings: QuerySettings,
    catalog: CatalogClient,
    work_list: CatalogClient,
    searching: Searching,
    clock: Clock,
) -> Alerts:
    """Opens them; where alerts are enabled the evaluator is at work. Raises SettingsError."""
    wanted, store = settings.alerts, RuleStore(work_list)
    around = Surroundings(searching.index, clock, wanted.groups_max, wanted.pages_uri)
    if not wanted.enabled:
        return Alerts(store, work_list, around, None, settings)
    if not settings.ingest.uri:
        raise SettingsError(
            "alerts.enabled needs ingest.uri: only `python -m ingest serve` says until when everything is in"
        )
    lasting_s = max(LASTING_S_MIN, RESENDS_MISSED * wanted.resend_s)
    managers = {uri: Alertmanager(uri, clock, lasting_s) for uri in wanted.alertmanagers}
    secret = wanted.webhook_secret.get_secret_value() if wanted.webhook_secret else ""
    parts = EvaluatorParts(
        store=store,
        around=around,
        tables_of=lambda tables: LoadedTables(catalog, tables),
        searcher_of=searching.searcher_of,
        lag=searching.lag,
        delivery=Delivery(managers, Webhooks(wanted.webhook_targets if secret else (), secret, clock), clock),
        alertmanagers=wanted.alertmanagers,
        usage=searching.usage,
        limits_of=searching.limits_of,
        timeout_s=settings.search.timeout_s,
        times=EvaluatorTimes(wanted.catch_up_s, wanted.resend_s, wanted.shown_s),
        clock=clock,
    )
    evaluator = Evaluator(parts, lambda: _lease(work_list, wanted.lease_s))
    evaluator.start()
    return Alerts(store, work_list, around, evaluator, settings)


def _lease(work_list: CatalogClient, lease_s: float) -> Lease:
    times = LeaseTimes(lease_s, lease_s / 4, min(0.5, lease_s / 4), lease_s / 4)
    holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
    return Lease(work_list, LEASE, times, holder=holder)

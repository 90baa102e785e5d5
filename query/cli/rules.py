"""`python -m query rules`: files of rules checked and tested without any service, and the rules of a tenant
kept, listed and tried on the past by the API. Answers are JSON, an object a line."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lake.errors import RefusedError
from lake.settings import QuerySettings
from lake.tenant import TenantId
from lake.terminal import json_text
from query.cli.command_line import Since, Tenant, Until
from query.cli.remote import open_remote

rules_cli = typer.Typer(help="Rules of alerts.", no_args_is_help=True)
Files = Annotated[list[Path], typer.Argument(help="files of rules, in YAML")]


@rules_cli.command("check")
def check(files: Files) -> None:
    """Read files of rules and tell every fault in them; asks no service."""
    from query.alerts.rule_file import read_rules  # the command line starts without it

    for path in files:
        found = read_rules(path)
        _say({"file": str(path), "rules": len(found.rules), "tests": len(found.tests)})


@rules_cli.command("test")
def test(files: Files) -> None:
    """Carry out the tests that files of rules have, on their own rows; asks no service. Exit code 1 where one
    fails."""
    from query.alerts.rule_file import read_rules
    from query.alerts.rule_tests import run_tests  # the engine takes most of a second to import
    from query.model.problem import BadRequestError

    settings, failed = QuerySettings.load(), 0
    for path in files:
        found = read_rules(path)
        try:
            for test, faults in run_tests(found, settings):
                failed += bool(faults)
                told = [f"after {fault.at_s} s: {fault.message}" for fault in faults]
                _say({"file": str(path), "test": test.name, "passed": not faults, "faults": told})
        except BadRequestError as error:
            raise RefusedError(f"{path}: {error.problem.message}") from error
    if failed:
        raise typer.Exit(1)


@rules_cli.command("apply")
def apply(
    files: Files,
    replace: Annotated[
        bool, typer.Option("--replace", help="delete the tenant's rules that are in none of the files")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would change, and change nothing")
    ] = False,
) -> None:
    """Keep the rules of files, each in place of the one of its name."""
    from query.alerts.rule_file import read_rules

    by_tenant: dict[str, list[dict[str, Any]]] = {}
    for path in files:
        found = read_rules(path)
        by_tenant.setdefault(found.tenant, []).extend(rule.to_json() for rule in found.rules)
    with open_remote() as remote:
        for tenant, rules in by_tenant.items():
            body = {"tenant": tenant, "rules": rules, "replace": replace, "dry_run": dry_run}
            _say({"tenant": tenant, **remote.post("/v1/alerts/rules", body)})


@rules_cli.command("list")
def list_rules(tenant: Tenant) -> None:
    """List a tenant's rules and how the evaluator fares with them."""
    with open_remote() as remote:
        for rule in remote.get("/v1/alerts/rules", {"tenant": tenant})["rules"]:
            _say(rule)


@rules_cli.command("delete")
def delete(tenant: Tenant, name: Annotated[str, typer.Argument(help="the rule's name")]) -> None:
    """Delete a rule; what it has told is told to be over."""
    with open_remote() as remote:
        remote.delete(f"/v1/alerts/rules/{name}", {"tenant": tenant})


@rules_cli.command("alerts")
def alerts(tenant: Tenant) -> None:
    """List what fires and what may soon."""
    with open_remote() as remote:
        for alert in remote.get("/v1/alerts", {"tenant": tenant})["alerts"]:
            _say(alert)


@rules_cli.command("dry-run")
def dry_run(
    files: Files,
    rule: Annotated[str, typer.Option(help="the one rule to try; without it all of the files")] = "",
    since: Since = "now-6h",
    until: Until = "now",
) -> None:
    """Tell what rules would have told of the past; nobody else is told."""
    from query.alerts.rule_file import read_rules

    found = [(read.tenant, each) for path in files for read in (read_rules(path),) for each in read.rules]
    wanted = [(tenant, each) for tenant, each in found if not rule or each.name == rule]
    if not wanted:
        raise RefusedError(f"there is no rule {rule!r} in these files")
    with open_remote() as remote:
        for tenant, each in wanted:
            body = {"tenant": tenant, "rule": each.to_json(), "from": since, "to": until}
            _say({"tenant": tenant, "rule": each.name, **remote.post("/v1/alerts/dry-run", body)})


@rules_cli.command("key")
def key(tenant: Tenant) -> None:
    """Print the key that a tenant's webhooks are signed with, for whoever receives them. Needs the settings
    of the server, of which it is made; asks no service."""
    from query.alerts.senders import tenant_key

    secret = QuerySettings.load().alerts.webhook_secret
    if secret is None:
        raise RefusedError("there is no alerts.webhook_secret: no webhook is sent, and there is no key")
    typer.echo(tenant_key(secret.get_secret_value(), TenantId(tenant)).decode())


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(json_text(told) + "\n")

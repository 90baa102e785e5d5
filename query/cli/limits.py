"""`python -m query limits|usage`: what a tenant may use, and what it used, from a terminal. Answers are JSON,
an object a line."""

import sys
from typing import Annotated

import typer

from lake.errors import RefusedError
from lake.limits import NONE, parse_limit
from lake.terminal import json_text
from query.cli.command_line import Tenant
from query.cli.remote import open_remote


def limits(
    tenant: Tenant,
    to_set: Annotated[
        list[str] | None, typer.Option("--set", help="name=number, or name=none for no limit; repeatable")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="name: the lake's counts; repeatable")
    ] = None,
) -> None:
    """Tell what a tenant may use and who says so; or change it, with a key that is bound to no tenant."""
    changes: dict[str, int | str | None] = dict.fromkeys(unset or ())
    for each in to_set or ():
        name, _, text = each.partition("=")
        changes[name] = _most(name, text)
    with open_remote() as remote:
        if changes:
            told = remote.post("/v1/tenants/limits", {"tenant": tenant, "limits": changes})
        else:
            told = remote.get("/v1/tenants/limits", {"tenant": tenant})
    for limit in told["limits"]:
        sys.stdout.write(json_text(limit) + "\n")


def usage(
    tenant: Annotated[str, typer.Argument(help="whose; without it all, with a key that reaches all")] = "",
    first: Annotated[str, typer.Option("--from", help="first day (UTC), like 2026-11-01")] = "",
    last: Annotated[str, typer.Option("--to", help="last day; without it today")] = "",
) -> None:
    """Tell what came of tenants and what they used of search, by day and stream, and what is stored of a
    tenant's streams now."""
    asked = {"tenant": tenant, "from": first, "to": last}
    with open_remote() as remote:
        told = remote.get("/v1/usage", {name: text for name, text in asked.items() if text})
    for each in (*told["ingested"], *told["searches"], *told["stored"]):
        sys.stdout.write(json_text(each) + "\n")


def _most(name: str, text: str) -> int | str:
    """Raises RefusedError."""
    try:
        most = parse_limit(text)
    except ValueError as error:
        raise RefusedError(f"--set {name}: {error}") from error
    return NONE if most is None else most

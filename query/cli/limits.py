"""`python -m query limits`: what a tenant may use, from a terminal. Answers are JSON, an object a line."""

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


def _most(name: str, text: str) -> int | str:
    """Raises RefusedError."""
    try:
        most = parse_limit(text)
    except ValueError as error:
        raise RefusedError(f"--set {name}: {error}") from error
    return NONE if most is None else most

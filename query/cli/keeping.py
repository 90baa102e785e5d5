"""`python -m query retention|hold`: how long rows are kept, and what may not go, from a terminal. Answers are
JSON, an object a line."""

import sys
from typing import Annotated, Any

import typer

from lake.errors import RefusedError
from lake.terminal import json_text
from query.cli.command_line import Since, Tenant, Until
from query.cli.remote import open_remote

hold_cli = typer.Typer(help="Legal holds.", no_args_is_help=True)
Stream = Annotated[str, typer.Option(help="one of the tenant's streams; without it all of them")]


def retention(
    tenant: Tenant,
    stream: Stream = "",
    to_set: Annotated[str, typer.Option("--set", help="30d, 720h or forever")] = "",
    unset: Annotated[
        bool, typer.Option("--unset", help="say nothing here: the tenant does, or the lake")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go, and change nothing")] = False,
) -> None:
    """Tell how long rows are kept of a tenant's streams or of one, and what goes; or set it."""
    if to_set and unset:
        raise RefusedError("--set and --unset contradict each other; give one")
    where = {"tenant": tenant, **({"stream": stream} if stream else {})}
    with open_remote() as remote:
        if to_set or unset:
            path = "/v1/streams/retention" if stream else "/v1/tenants/retention"
            _say(remote.post(path, {**where, "retention": to_set or None, "dry_run": dry_run}))
        elif stream:
            _say(remote.get("/v1/streams/detail", where)["retention"])
        else:
            _say(remote.get("/v1/tenants/retention", where))


@hold_cli.command("list")
def hold_list(tenant: Tenant) -> None:
    """List the legal holds of a tenant."""
    with open_remote() as remote:
        for hold in remote.get("/v1/holds", {"tenant": tenant})["holds"]:
            _say(hold)


@hold_cli.command("set")
def hold_set(
    tenant: Tenant,
    reason: Annotated[str, typer.Option(help="for which case it is")],
    stream: Stream = "",
    since: Since = "",
    until: Until = "",
) -> None:
    """Set a legal hold: nothing of it goes by retention, erasure or deletion. Needs a key that is bound to no
    tenant."""
    body = {"tenant": tenant, "stream": stream or None, "from": since, "to": until, "reason": reason}
    with open_remote() as remote:
        _say(remote.post("/v1/holds", body))


@hold_cli.command("lift")
def hold_lift(
    tenant: Tenant, hold: Annotated[str, typer.Argument(help="its id, as the list has it")]
) -> None:
    """Lift a legal hold. Needs a key that is bound to no tenant."""
    with open_remote() as remote:
        _say(remote.delete(f"/v1/holds/{hold}", {"tenant": tenant}))


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json_text(answer) + "\n")

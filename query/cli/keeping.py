"""`python -m query retention|hold|stream|tenant`: how long rows are kept, what may not go, and the end of a
stream and of a tenant, from a terminal. Answers are JSON, an object a line."""

import sys
from typing import Annotated, Any

import typer

from lake.errors import RefusedError
from lake.terminal import json_text
from query.cli.command_line import Since, Tenant, Until
from query.cli.remote import open_remote
from query.model.deleted_files import Files

hold_cli = typer.Typer(help="Legal holds.", no_args_is_help=True)
stream_cli = typer.Typer(help="Streams that end.", no_args_is_help=True)
tenant_cli = typer.Typer(help="Tenants that end.", no_args_is_help=True)
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


@stream_cli.command("delete")
def stream_delete(
    tenant: Tenant,
    stream: Annotated[str, typer.Argument(help="one of the tenant's streams")],
    files: Annotated[Files, typer.Option(help="after-undo: they go then; keep: they stay")],
) -> None:
    """Delete a stream; it can be brought back for the catalog's time for undo."""
    with open_remote() as remote:
        _say(remote.delete("/v1/streams", {"tenant": tenant, "stream": stream, "files": files.value}))


@stream_cli.command("deleted")
def stream_deleted(tenant: Tenant) -> None:
    """List deleted streams: when their files go, what keeps them, and since when they are gone."""
    with open_remote() as remote:
        told = remote.get("/v1/streams/dropped", {"tenant": tenant})
    for each in (*told["dropped"], *told["purged"]):
        _say(each)


@stream_cli.command("undo")
def stream_undo(
    tenant: Tenant, stream: Annotated[str, typer.Argument(help="as it was called; the last one of that name")]
) -> None:
    """Bring a deleted stream back."""
    with open_remote() as remote:
        _say(remote.post("/v1/streams/undo", {"tenant": tenant, "stream": stream}))


@stream_cli.command("purge")
def stream_purge(
    tenant: Tenant,
    deleted: Annotated[int, typer.Argument(help="id of the deleted stream, as the list has it")],
    now: Annotated[bool, typer.Option("--now", help="do not wait for the time for undo")] = False,
) -> None:
    """Have the files of a deleted stream removed for good. Needs an administrator's key."""
    with open_remote() as remote:
        _say(remote.post("/v1/streams/purge", {"tenant": tenant, "id": deleted, "now": now}))


@tenant_cli.command("remove")
def tenant_remove(tenant: Tenant) -> None:
    """Remove a tenant that has no streams any more, with its retention and its limits."""
    with open_remote() as remote:
        _say(remote.delete("/v1/tenants", {"tenant": tenant}))


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json_text(answer) + "\n")

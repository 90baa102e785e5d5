"""Named steps of the protocol at which a test may stop a process; without the variable set, reaching one does
nothing.

`FIRN_FAULT_POINT=step:kill` ends the process there by SIGKILL, as a crash would; `step:wait` writes its id to
`<folder>/<step>.reached` and waits until `<folder>/<step>.go` is there, so that something else can be killed
meanwhile. Several are separated by commas. Each happens once per folder (`FIRN_FAULT_FOLDER`), so that one
process after the other may die of them.
"""

import os
import signal
import time
from pathlib import Path

from lake.clock import SYSTEM_CLOCK

ACTIONS: dict[str, str] = {}  # by step
_FOLDER = "FIRN_FAULT_FOLDER"
WAIT_MAX_S = 30.0

STEPS = (
    "routed_in_batch",  # a worker has routed part of a batch that Kafka gave it
    "rolled_over_in_batch",  # a flush was cut while a batch was only partly routed
    "files_written",  # data files are there, not yet synced
    "files_synced",
    "dead_letters_acknowledged",
    "handed_over",  # the flush is with the main process
    "metadata_written",  # manifests are durable, the request is not yet sent
    "commit_answered",  # the catalog has committed, the node has not noted it
    "settled",  # the workers know
    "offsets_confirmed",  # the lease was held after all they stand on was acknowledged
    "offsets_stored",
    "parked_record_written",  # in the catalog; nobody parks yet
    "parking_told",
    "parked_in_flight",  # what was in flight is on its way to the parking topic
    "parked_acknowledged",
    "drain_handed_over",
    "held",
    "parked_record_removed",  # the table is live in the catalog, and held in the workers
    "released",
)

# Steps that only the Spark engine has; it has most of those above too, the workers' in its executors' tasks.
SPARK_STEPS = (
    "job_ended",  # every task has given its result to the driver
    "job_collected",  # the driver knows what they mean, the main process does not yet
)


def arm() -> None:
    """Takes the variable as it is now: a process that was forked has its own after the imports."""
    ACTIONS.clear()
    asked = os.environ.get("FIRN_FAULT_POINT", "").split(",")
    ACTIONS.update(dict(each.split(":", 1) for each in asked if each))


def reach(step: str) -> None:
    """Does what was asked for at a step, if anything was."""
    if step in ACTIONS:
        _act(step)


def _act(step: str) -> None:
    folder = Path(os.environ.get(_FOLDER, "."))
    try:
        with (folder / f"{step}.reached").open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return
    if ACTIONS[step] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    until_s = SYSTEM_CLOCK.monotonic_s() + WAIT_MAX_S
    while not (folder / f"{step}.go").exists() and SYSTEM_CLOCK.monotonic_s() < until_s:
        time.sleep(0.01)


arm()

"""What the fork server imports before it forks: all that the rooms import at their start, and, where their
command lines put it off, when they serve.

A room's `__main__` itself is forgotten again: it runs in every process anew, under the name that it has
there.
"""

import gc
import importlib
import sys

import ui.settings
from lake.tls import tls_context
from tests.stack.support.forked import ROOMS

PUT_OFF = ("ingest.serve.api", "ingest.serve.app", "query.api.server")

for module in (*(f"{room}.__main__" for room in ROOMS), *PUT_OFF):
    importlib.import_module(module)
for room in ROOMS:
    del sys.modules[f"{room}.__main__"]
# The certificates of all authorities: a process whose settings name no others has them already.
tls_context()
ui.settings.tls_context()
gc.collect()
gc.freeze()  # pages that are only read stay shared

"""What routes depend on is found on the event loop."""

from collections.abc import Iterator
from inspect import isasyncgenfunction, iscoroutinefunction
from types import ModuleType

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from query.api.app import ROUTES
from query.api.observed import observed


def _calls(dependant: Dependant) -> Iterator[object]:
    for each in dependant.dependencies:
        yield each.call
        yield from _calls(each)


@pytest.mark.parametrize("module", ROUTES, ids=lambda module: module.__name__)
def test_no_route_takes_a_thread_for_what_it_depends_on(module: ModuleType) -> None:
    """FastAPI runs a dependency that is not async in a thread, each time a route is asked."""
    routes = [route for route in module.router.routes if isinstance(route, APIRoute)]
    calls = {call for route in routes for call in _calls(route.dependant)} | {observed}
    assert len(calls) > 1
    assert not [call for call in calls if not (iscoroutinefunction(call) or isasyncgenfunction(call))]

"""Keycloak, as organisations run it, with a realm of the test's: a confidential client for the pages that has
to use PKCE, groups, tenants as a client's roles, and refresh tokens that are good for one time.

It is a process of the test's own with everything in memory: started anew, it signs by other keys.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import httpx

from infra.local import jvm_parts
from infra.local.java import CLASSIC, find
from infra.local.ports import LOOPBACK, reserve_free
from tests.stack.support.waiting import wait_for
from tests.ui.support.provider import CLIENT, CLIENT_SECRET

REALM, AUDIENCE, TENANTS = "firn", "firn-api", "firn-tenants"
ADMIN, PASSWORD = "firn-admin", "of-this-test-alone"
LASTS_S = 20  # of access tokens
START_S = 240.0
STOP_S = 30.0
END_BYTES = 4_000
HEAP = "-Xms64m -Xmx512m -XX:TieredStopAtLevel=1"
Json = dict[str, Any]
_FORM = re.compile(r'<form[^>]*\baction="([^"]+)"')


@dataclass(frozen=True)
class Person:
    """Somebody in the realm, whose password is their name. `tenants`: names under the claim of tenants."""

    name: str
    groups: Sequence[str] = ()
    tenants: Sequence[str] = ()


@dataclass
class Keycloak:
    """One server. `url`: of the issuer."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.address}/realms/{REALM}"

    @property
    def token_endpoint(self) -> str:
        return f"{self.url}/protocol/openid-connect/token"

    def start(self) -> None:
        """Starts it; returns when it answers."""
        java = find(CLASSIC)
        assert java is not None
        variables = {
            **os.environ,
            "JAVA": str(java.java),
            "JAVA_OPTS_KC_HEAP": HEAP,
            "KC_BOOTSTRAP_ADMIN_USERNAME": ADMIN,
            "KC_BOOTSTRAP_ADMIN_PASSWORD": PASSWORD,
        }
        options = (f"--http-host={LOOPBACK}", f"--http-port={self.port}", "--db=dev-mem", "--cache=local")
        with (self.folder / "keycloak.log").open("ab") as log:
            process = self._process = subprocess.Popen(
                [self.folder / "bin/kc.sh", "start-dev", *options],
                env=variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        def answers() -> bool:
            assert process.poll() is None, self._log()
            try:
                return httpx.get(f"{self.address}/realms/master", trust_env=False).is_success
            except httpx.HTTPError:
                return False

        wait_for(answers, START_S, "Keycloak to answer")

    def stop(self) -> None:
        """Ends it, with everything that it knew."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S)
            self._process = None

    def fill(self, people: Sequence[Person], pages: Sequence[str]) -> None:
        """Gives it the realm. `pages`: addresses of front ends at which people may log in."""
        with httpx.Client(base_url=self.address, trust_env=False, timeout=60.0) as client:
            form = {
                "grant_type": "password",
                "client_id": "admin-cli",
                "username": ADMIN,
                "password": PASSWORD,
            }
            told = client.post("/realms/master/protocol/openid-connect/token", data=form).raise_for_status()
            headers = {"Authorization": f"Bearer {told.json()['access_token']}"}
            client.post("/admin/realms", json=_realm(people, pages), headers=headers).raise_for_status()

    def logs_in(self, authorize: str, person: str) -> str:
        """Where a browser is sent back to after a person has filled in the form that it was sent to."""
        with httpx.Client(trust_env=False, timeout=60.0) as client:
            page = client.get(authorize)
            form = _FORM.search(page.text)
            assert form is not None, page.text
            # Browsers take cookies of a secure origin from this machine over http; this client does not.
            kept = "; ".join(each.partition(";")[0] for each in page.headers.get_list("set-cookie"))
            typed = {"username": person, "password": person, "credentialId": ""}
            answer = client.post(unescape(form[1]), data=typed, headers={"cookie": kept})
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])

    def _log(self) -> str:
        return (self.folder / "keycloak.log").read_text(errors="replace")[-END_BYTES:]


@contextmanager
def keycloak() -> Iterator[Keycloak]:
    """One that is running, without a realm."""
    parts = jvm_parts.fetch(jvm_parts.KEYCLOAK, print)
    with TemporaryDirectory(prefix="firn-keycloak-") as folder:
        home = Path(folder) / "server"
        shutil.copytree(parts / "server", home)  # it writes beside its own files when it starts
        server = Keycloak(home, reserve_free())
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _realm(people: Sequence[Person], pages: Sequence[str]) -> Json:
    tenants = sorted({tenant for person in people for tenant in person.tenants})
    return {
        "realm": REALM,
        "enabled": True,
        "accessTokenLifespan": LASTS_S,
        "revokeRefreshToken": True,
        "refreshTokenMaxReuse": 0,
        "groups": [{"name": name} for name in sorted({each for person in people for each in person.groups})],
        "roles": {"client": {TENANTS: [{"name": tenant} for tenant in tenants]}},
        "clients": [
            {"clientId": TENANTS, "enabled": True},
            {
                "clientId": CLIENT,
                "enabled": True,
                "secret": CLIENT_SECRET,
                "publicClient": False,
                "standardFlowEnabled": True,
                "fullScopeAllowed": True,
                "redirectUris": [f"{address}/oauth2callback" for address in pages],
                "attributes": {
                    "pkce.code.challenge.method": "S256",
                    "post.logout.redirect.uris": "+",
                },
                "protocolMappers": _mappers(),
            },
        ],
        "users": [_user(person) for person in people],
    }


def _mappers() -> list[Json]:
    told = {"access.token.claim": "true", "id.token.claim": "true"}
    kinds: Mapping[str, tuple[str, Json]] = {
        "groups": ("oidc-group-membership-mapper", {"claim.name": "groups", "full.path": "false"}),
        "audience": ("oidc-audience-mapper", {"included.custom.audience": AUDIENCE}),
        "tenants": (
            "oidc-usermodel-client-role-mapper",
            {
                "usermodel.clientRoleMapping.clientId": TENANTS,
                "claim.name": "firn_tenants",
                "jsonType.label": "String",
                "multivalued": "true",
            },
        ),
    }
    return [
        {"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": {**told, **config}}
        for name, (kind, config) in kinds.items()
    ]


def _user(person: Person) -> Json:
    return {
        "id": str(uuid5(NAMESPACE_DNS, person.name)),  # the same after a restart
        "username": person.name,
        "email": f"{person.name}@example.org",
        "firstName": person.name,
        "lastName": "Example",
        "enabled": True,
        "emailVerified": True,
        "credentials": [{"type": "password", "value": person.name, "temporary": False}],
        "groups": [f"/{group}" for group in person.groups],
        "clientRoles": {TENANTS: list(person.tenants)},
    }

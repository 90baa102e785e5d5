"""An OpenID Connect provider that is not ours: `oidc-provider-mock` of PyPI, in a thread of the test."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import oidc_provider_mock

CLIENT, CLIENT_SECRET = "firn-pages", "secret-of-the-pages"
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Provider:
    """A provider, by its address."""

    url: str

    def token(self, subject: str) -> str:
        """The ID token of a person, by the authorization code flow, as any client gets it."""
        asked = {
            "client_id": CLIENT,
            "redirect_uri": "http://127.0.0.1/back",
            "response_type": "code",
            "scope": "openid profile",
        }
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False) as client:
            back = client.post("/oauth2/authorize", params=asked, data={"sub": subject}).headers["location"]
            form = {
                "grant_type": "authorization_code",
                "code": parse_qs(urlsplit(back).query)["code"][0],
                "redirect_uri": asked["redirect_uri"],
            }
            told = client.post("/oauth2/token", data=form, auth=(CLIENT, CLIENT_SECRET)).json()
        return str(told["id_token"])

    def knows(self, subject: str, claims: Mapping[str, Any]) -> None:
        """Gives a person these claims."""
        httpx.put(f"{self.url}/users/{subject}", json=dict(claims), trust_env=False).raise_for_status()


@contextmanager
def provider(people: Mapping[str, Mapping[str, Any]]) -> Iterator[Provider]:
    """One that knows these people, by subject, with their claims."""
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"  # of the provider's own library: this machine alone
    users = [oidc_provider_mock.User(sub=name, claims=dict(claims)) for name, claims in people.items()]
    with oidc_provider_mock.run_server_in_thread(user_claims=users) as server:
        yield Provider(f"http://localhost:{server.server_port}")

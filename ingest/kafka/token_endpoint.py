"""Whether the issuer gives tokens for Kafka. Kafka's client asks one that answers "not now" again for a while
before it says a word, and by then whoever waited for a broker has given up, and blamed that."""

import ssl

import httpx

from lake.settings import IngestSettings
from lake.tls import tls_context

ANSWER_S = 5.0


def why_no_token(settings: IngestSettings) -> str | None:
    """Returns why the token endpoint of the settings gives none; None where it gives one, or where there is
    no endpoint."""
    kafka = settings.kafka
    if not kafka.oauth_token_endpoint:
        return None
    ca = kafka.ssl_ca
    form = {"grant_type": "client_credentials", "scope": kafka.oauth_scope or ""}
    client = (kafka.value("oauth_client_id"), kafka.value("oauth_client_secret"))
    try:
        answer = httpx.post(
            kafka.oauth_token_endpoint,
            data={name: value for name, value in form.items() if value},
            auth=client,
            timeout=ANSWER_S,
            verify=ssl.create_default_context(cafile=ca) if ca else tls_context(),
        )
    except (httpx.HTTPError, OSError) as error:
        return f"no answer ({type(error).__name__})"
    return None if answer.is_success else f"the answer {answer.status_code}"

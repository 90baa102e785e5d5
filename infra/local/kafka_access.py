"""A Kafka with users and access lists: one listener for users with passwords, one for client certificates,
both over TLS, with certificates and passwords of a folder that somebody has made."""

from pathlib import Path
from typing import Any

from infra.local.ports import LOOPBACK
from infra.local.service import Site
from lake.errors import PrerequisiteError
from lake.settings import InfraSettings

CA, BROKER = "ca.pem", "broker.pem"
# Who may do everything, and as whom Firn comes: by password, or by a certificate whose CN it is.
ADMIN, FIRN = "admin", "firn"
MECHANISM = "SCRAM-SHA-512"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def password_file(folder: Path, user: str) -> Path:
    """The file with a user's password."""
    return folder / f"{user}.password"


def listeners(site: Site) -> list[str]:
    """Users with passwords, certificates, and brokers and controllers among each other."""
    mutual, controller = site.ports["mutual"], site.ports["controller"]
    for_clients = f"SASL_SSL://{LOOPBACK}:{site.port},SSL://{LOOPBACK}:{mutual}"
    return [
        f"listeners={for_clients},CONTROLLER://{LOOPBACK}:{controller}",
        f"advertised.listeners={for_clients}",
        "inter.broker.listener.name=SSL",
        "listener.security.protocol.map=CONTROLLER:SSL,SSL:SSL,SASL_SSL:SASL_SSL",
        "listener.name.ssl.ssl.client.auth=required",
        "listener.name.controller.ssl.client.auth=required",
    ]


def server_properties(folder: Path) -> list[str]:
    """What is added to Kafka's server.properties. Raises PrerequisiteError where a file is missing."""
    folder = folder.absolute()
    for path in (folder / CA, folder / BROKER, password_file(folder, ADMIN), password_file(folder, FIRN)):
        if not path.is_file():
            raise PrerequisiteError(f"{path} is missing in the folder that infra.kafka.access names")
    password = password_file(folder, ADMIN).read_text().strip()
    return [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / BROKER}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={folder / CA}",
        "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/",
        f"sasl.enabled.mechanisms={MECHANISM},SCRAM-SHA-256,PLAIN",
        f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={_SCRAM}",
        f"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={_SCRAM}",
        f'listener.name.sasl_ssl.plain.sasl.jaas.config={_PLAIN} user_{ADMIN}="{password}";',
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=false",
        f"super.users=User:{ADMIN};User:broker",
    ]


def exports(folder: Path) -> dict[str, str]:
    """How Firn comes in: variables of its settings."""
    folder = folder.absolute()
    reached_by = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": MECHANISM,
        "SASL_USERNAME": FIRN,
        "SASL_PASSWORD_FILE": str(password_file(folder, FIRN)),
        "SSL_CA": str(folder / CA),
    }
    return {f"FIRN_INGEST_KAFKA__{name}": value for name, value in reached_by.items()}


def administrator(address: str) -> dict[str, Any]:
    """The options of a client that may do everything on the stack's own Kafka."""
    folder = InfraSettings.load().kafka.access
    if folder is None:
        return {"bootstrap.servers": address}
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ADMIN,
        "sasl.password": password_file(folder, ADMIN).read_text().strip(),
        "ssl.ca.location": str(folder.absolute() / CA),
    }

"""A Trino with users: TLS with a certificate of its own, the password file and the access rules that `python
-m query trino-access` wrote."""

import secrets
import shutil
import subprocess
from pathlib import Path

from infra.local import java, jvm_parts
from infra.local.ports import LOOPBACK
from infra.local.service import Site
from lake.errors import PrerequisiteError
from lake.private_files import UMASK, private_folder

RULES, PASSWORDS = "rules.json", "password.db"
VALID_DAYS = "3650"
TIMEOUT_S = 60.0


def server_properties(site: Site, folder: Path) -> list[str]:
    """What is added to Trino's config.properties. Raises PrerequisiteError where a file or program is
    missing."""
    for name in (RULES, PASSWORDS):
        if not (folder / name).is_file():
            raise PrerequisiteError(
                f"{folder / name} is missing: write it with `python -m query trino-access {folder}`"
            )
    folder = folder.absolute()
    secret = secrets.token_urlsafe(24)
    keystore = _certificate(site, secret)
    passwords = site.write(
        "etc/password-authenticator.properties",
        [
            "password-authenticator.name=file",
            f"file.password-file={folder / PASSWORDS}",
            "file.refresh-period=5s",
        ],
    )
    control = site.write(
        "etc/access-control.properties",
        ["access-control.name=file", f"security.config-file={folder / RULES}", "security.refresh-period=5s"],
    )
    return [
        "http-server.https.enabled=true",
        f"http-server.https.port={site.ports['https']}",
        f"http-server.https.keystore.path={keystore}",
        f"http-server.https.keystore.key={secret}",
        # Plain HTTP stays for Trino's own talk, which the shared secret guards; people are turned away there.
        "http-server.authentication.type=PASSWORD",
        f"internal-communication.shared-secret={secrets.token_urlsafe(32)}",
        f"password-authenticator.config-files={passwords}",
        f"access-control.config-files={control}",
    ]


def link_plugins(site: Site, plugins: Path) -> Path:
    """A folder with the server's plugins and the one that asks for passwords, which is fetched when it is
    first needed."""
    password = jvm_parts.fetch(jvm_parts.TRINO_PASSWORD, lambda _: None) / "plugin"
    together = site.folder / "plugin"
    shutil.rmtree(together, ignore_errors=True)
    private_folder(together)
    for plugin in (*plugins.iterdir(), password):
        (together / (plugin.name if plugin is not password else "password-authenticators")).symlink_to(plugin)
    return together


def certificate_file(site: Site) -> Path:
    """The certificate that clients trust."""
    return site.folder / "certificate.pem"


def _certificate(site: Site, secret: str) -> Path:
    """A certificate for this machine alone, new at every start. Its key never leaves the keystore."""
    jdk = java.find(java.MODERN)
    keytool = jdk.java.with_name("keytool") if jdk is not None else None
    if keytool is None or not keytool.is_file():
        raise PrerequisiteError(
            "Trino with users needs `keytool`, which comes with a JDK: install one, or leave "
            "FIRN_INFRA_TRINO__ACCESS out"
        )
    keystore, certificate = site.folder / "keystore.p12", certificate_file(site)
    for old in (keystore, certificate):
        old.unlink(missing_ok=True)
    store = (
        "-keystore",
        str(keystore),
        "-storetype",
        "PKCS12",
        "-storepass:env",
        "FIRN_KEYSTORE",
        "-alias",
        "trino",
    )
    name = ("-dname", "CN=firn", "-ext", f"SAN=ip:{LOOPBACK},dns:localhost", "-validity", VALID_DAYS)
    for command in (
        ("-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", *name, *store),
        ("-exportcert", "-rfc", "-file", str(certificate), *store),
    ):
        environment = {"FIRN_KEYSTORE": secret, "PATH": str(keytool.parent)}
        done = subprocess.run(
            [str(keytool), *command],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=environment,
            umask=UMASK,
        )
        if done.returncode:
            raise PrerequisiteError(
                f"keytool could not make a certificate for Trino: {(done.stdout + done.stderr).strip()[:300]}"
            )
    return keystore

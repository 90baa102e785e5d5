"""A CA made for a test, and certificates that it signs, valid now or not any more."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from infra.local.ports import LOOPBACK

VALID = timedelta(days=2)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class CertificateAuthority:
    """Writes PEM files into a folder: `ca.pem`, and `<name>.pem` (certificate) with `<name>.key`. `valid`:
    how long from now on."""

    def __init__(self, folder: Path, valid: timedelta = VALID) -> None:
        self._folder = folder
        self._valid = valid
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._builder(
            "private", self._key.public_key(), datetime.now(UTC) + valid
        ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._write("ca.pem", certificate.sign(self._key, hashes.SHA256()))

    def __getitem__(self, name: str) -> Path:
        return self._folder / name

    def sign(self, name: str, *, ended: bool = False) -> None:
        """Makes a key, and the certificate of a server on loopback and of a client at once; `ended`: it was
        valid until a minute ago."""
        key, until = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        until += timedelta(minutes=-1) if ended else self._valid
        host = x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))])
        made = self._builder(name, key.public_key(), until).add_extension(host, critical=False)
        self._write(f"{name}.key", key)
        self._write(f"{name}.pem", made.sign(self._key, hashes.SHA256()))

    def _builder(
        self, subject: str, key: ec.EllipticCurvePublicKey, until: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name("private"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(until - 2 * self._valid)
            .not_valid_after(until)
        )

    def _write(self, name: str, made: x509.Certificate | ec.EllipticCurvePrivateKey) -> None:
        """In one step: whoever reads meanwhile has the whole old file or the whole new one."""
        content = (
            made.public_bytes(serialization.Encoding.PEM)
            if isinstance(made, x509.Certificate)
            else made.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        beside = self._folder / f"{name}.new"
        beside.write_bytes(content)
        beside.rename(self._folder / name)

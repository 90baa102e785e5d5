"""Until when certificates are in force.

Of DER only what stands before a certificate's validity is read (ITU-T X.690; RFC 5280, 4.1): Python's own
library tells the end of certificates alone that it trusts.
"""

import re
import ssl
from datetime import UTC, datetime

# Tags: of a certificate's version, which the oldest lack, and of times.
_VERSION, _UTC_TIME = 0xA0, 0x17
_BEFORE_VALIDITY = 3  # serial number, signature's algorithm, issuer
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def ends_of_pem(text: str) -> list[datetime]:
    """The ends of the certificates of a PEM file, in its order. Raises ValueError where there is none, or one
    is broken."""
    found = [ssl.PEM_cert_to_DER_cert(pem) for pem in _PEM.findall(text)]
    if not found:
        raise ValueError("the file has no certificate")
    return [end_of(certificate) for certificate in found]


def end_of(certificate: bytes) -> datetime:
    """The last moment of a certificate in DER. Raises ValueError for bytes that are none."""
    try:
        ((_, whole),) = _parts(certificate)
        (_, signed), *_ = _parts(whole)
        fields = [field for field in _parts(signed) if field[0] != _VERSION]
        _, (tag, text) = _parts(fields[_BEFORE_VALIDITY][1])
    except IndexError as error:
        raise ValueError("these bytes are no certificate") from error
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode(), form).replace(tzinfo=UTC)


def _parts(content: bytes) -> list[tuple[int, bytes]]:
    """Tags and contents of what stands one behind the other."""
    parts, at = [], 0
    while at < len(content):
        tag, size, at = content[at], content[at + 1], at + 2
        if size & 0x80:
            digits = size & 0x7F
            size, at = int.from_bytes(content[at : at + digits]), at + digits
        parts.append((tag, content[at : at + size]))
        at += size
    return parts

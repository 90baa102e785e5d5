"""Until when certificates are in force: as a well-known library reads them, and as a metric says it."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from lake.certificate_ends import UNREADABLE_S, CertificateEnds
from lake.certificates import end_of, ends_of_pem
from tests.stack.support.certificates import CertificateAuthority


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    made = CertificateAuthority(tmp_path, timedelta(days=25 * 365))  # beyond 2049 times are written otherwise
    made.sign("firn", ended=True)
    return made


def told_s(setting: str) -> float | None:
    """What the metric says of a setting; None: nothing."""
    return REGISTRY.get_sample_value("firn_certificate_expires_timestamp_seconds", {"setting": setting})


def test_ends_are_those_that_are_written(authority: CertificateAuthority) -> None:
    """Of every certificate of a file, whatever stands between them."""
    files = [authority[name] for name in ("ca.pem", "firn.key", "firn.pem")]
    loaded = [x509.load_pem_x509_certificate(files[at].read_bytes()) for at in (0, 2)]
    ends = [each.not_valid_after_utc for each in loaded]
    assert ends_of_pem("\nsome words\n".join(file.read_text() for file in files)) == ends
    assert ends[0].year > 2049


def test_a_file_without_a_certificate_is_told(authority: CertificateAuthority) -> None:
    for text in ("", authority["firn.key"].read_text()):
        with pytest.raises(ValueError, match="no certificate"):
            ends_of_pem(text)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_certificate_are_told(content: bytes) -> None:
    with pytest.raises(ValueError):
        end_of(content)


def test_the_metric_follows_the_files(
    authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first end of a file of several; another once there is another file, 0 where nothing can be read;
    nothing of a setting that names none."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    monkeypatch.setenv("FIRN_TLS_CA", str(tmp_path / "bundle.pem"))
    ends = CertificateEnds({"of.test": str(authority["firn.pem"]), "of.none": None})
    both = [authority["ca.pem"].read_text(), authority["firn.pem"].read_text()]
    first_s = ends_of_pem(both[1])[0].timestamp()
    (tmp_path / "bundle.pem").write_text("".join(both))
    ends.note()
    assert (told_s("tls.ca"), told_s("of.test"), told_s("of.none")) == (first_s, first_s, None)
    authority.sign("firn")
    (tmp_path / "bundle.pem").write_text("nothing")
    ends.note()
    after_s = ends_of_pem(authority["firn.pem"].read_text())[0].timestamp()
    assert (told_s("tls.ca"), told_s("of.test")) == (UNREADABLE_S, after_s)
    assert after_s > first_s
    (tmp_path / "bundle.pem").unlink()
    ends.note()
    assert told_s("tls.ca") == UNREADABLE_S

"""s3proxy: S3 over a folder of this machine, with one bucket for the warehouse."""

import secrets

import httpx

from infra.local import class_archives, jvm_parts
from infra.local.java import CLASSIC
from infra.local.ports import LOOPBACK
from infra.local.prerequisites import missing_java
from infra.local.service import BUCKET, Launch, Service, Site, http_status, java_command
from lake.private_files import private_folder

ACCESS_KEY_ID = "firn"
HEAP_MB = 256
LOGBACK = [
    "<configuration>",
    (
        '  <appender name="S" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d{ISO8601} '
        "%level "
        "%msg%n</pattern></encoder></appender>"
    ),
    '  <root level="info"><appender-ref ref="S"/></root>',
    "</configuration>",
]


def _secret(site: Site) -> str:
    """The same secret key for every start of this stack, and another one for each stack."""
    known = site.stack.record("s3").exports.get("FIRN_STORAGE_S3__SECRET_ACCESS_KEY")
    return known or secrets.token_hex(20)


def _prepare(site: Site) -> Launch:
    secret = _secret(site)
    endpoint = f"http://{LOOPBACK}:{site.port}"
    private_folder(private_folder(site.folder / "store") / BUCKET)  # to s3proxy a folder is a bucket
    logback = site.write("logback.xml", LOGBACK)  # without it every request is logged in full
    properties = site.write(
        "s3proxy.conf",
        [
            "s3proxy.authorization=aws-v2-or-v4",
            f"s3proxy.endpoint={endpoint}",
            f"s3proxy.identity={ACCESS_KEY_ID}",
            f"s3proxy.credential={secret}",
            "s3proxy.ignore-unknown-headers=true",  # else Trino cannot create tables
            "jclouds.provider=filesystem",
            f"jclouds.filesystem.basedir={site.folder / 'store'}",
            "jclouds.identity=local",
            "jclouds.credential=local",
        ],
    )
    quick = ("-XX:+UseSerialGC", *class_archives.options("s3"), f"-Dlogback.configurationFile={logback}")
    java = (*java_command(CLASSIC, HEAP_MB), *quick, "-cp", f"{jvm_parts.folder('s3')}/*")
    return Launch(
        command=(*java, "org.gaul.s3proxy.Main", "--properties", str(properties)),
        address=endpoint,
        folder=site.folder,
        exports={
            "FIRN_STORAGE_S3__ENDPOINT": endpoint,
            "FIRN_STORAGE_S3__REGION": "us-east-1",
            "FIRN_STORAGE_S3__ACCESS_KEY_ID": ACCESS_KEY_ID,
            "FIRN_STORAGE_S3__SECRET_ACCESS_KEY": secret,
        },
    )


def _probe(address: str) -> str | None:
    answer = http_status(f"{address}/")
    # Without a signature S3 answers 403: refused, so it is there.
    return None if answer in (httpx.codes.OK, httpx.codes.FORBIDDEN) else f"GET /: {answer}"


SERVICE = Service(
    name="s3",
    prepare=_prepare,
    probe=_probe,
    missing=lambda: missing_java(CLASSIC),
    parts="s3",
    ready_timeout_s=60.0,
    grace_s=10.0,
)

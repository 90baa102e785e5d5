# The ingestion node whose records executors of Spark read and write, and these executors.

FROM rust:1.90.0-slim-bookworm AS core
COPY core /core
RUN cargo build --release --locked --offline --manifest-path /core/Cargo.toml --target-dir /build

FROM python:3.11.14-slim-bookworm AS packages
COPY requirements/ingest-spark.txt /tmp/requirements.txt
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
WORKDIR /opt/firn
COPY lake lake
COPY ingest ingest
# A file system that is read-only later keeps no compiled modules.
RUN python -m compileall -q --invalidation-mode unchecked-hash lake ingest

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="Firn ingest on Spark" \
      org.opencontainers.image.description="Kafka to Iceberg by executors of Spark" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless=17.* \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /var/lib/firn --create-home firn
COPY --from=packages /opt /opt
COPY --from=core /build/release/libfirn_core.so /opt/libfirn_core.so
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/firn \
    PYTHONUNBUFFERED=1 \
    FIRN_CORE=/opt/libfirn_core.so \
    FIRN_INGEST_ENGINE=spark \
    FIRN_INGEST_NODE__HOST=0.0.0.0
# The only folder that is written to, beside /tmp. What settings call `state/` lies in it, and firn.toml may.
WORKDIR /var/lib/firn
VOLUME /var/lib/firn
USER 10001:10001
EXPOSE 8383
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8383/readyz', timeout=4)"]
ENTRYPOINT ["python", "-m", "ingest"]
CMD ["run"]

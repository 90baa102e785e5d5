# Maintenance, with a Java, Iceberg's jars for Spark and the native core.

FROM rust:1.90.0-slim-bookworm AS core
COPY core /core
RUN cargo build --release --locked --offline --manifest-path /core/Cargo.toml --target-dir /build

# Iceberg's jars for Spark; each has to have the SHA-256 that infra/poms lists.
FROM python:3.11.14-slim-bookworm AS jars
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends maven=3.8.* \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/infra.txt /tmp/requirements.txt
RUN python -m venv /fetch \
    && /fetch/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
WORKDIR /firn
COPY lake lake
COPY infra infra
RUN FIRN_CACHE=/cache /fetch/bin/python -m infra fetch spark && mv /cache/jvm/spark-* /jars

FROM python:3.11.14-slim-bookworm AS packages
COPY requirements/optimize.txt /tmp/requirements.txt
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
WORKDIR /opt/firn
COPY lake lake
COPY optimize optimize
# A file system that is read-only later keeps no compiled modules.
RUN python -m compileall -q --invalidation-mode unchecked-hash lake optimize

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="Firn optimize" \
      org.opencontainers.image.description="Maintenance of tables on Spark: merges, expiry, retention" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless=17.* \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /var/lib/firn --create-home firn
COPY --from=packages /opt /opt
COPY --from=core /build/release/libfirn_core.so /opt/libfirn_core.so
COPY --from=jars /jars /opt/jars
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/firn \
    PYTHONUNBUFFERED=1 \
    FIRN_CORE=/opt/libfirn_core.so \
    FIRN_OPTIMIZE_SPARK__JARS=/opt/jars \
    FIRN_OPTIMIZE_HTTP__HOST=0.0.0.0 \
    FIRN_OPTIMIZE_HTTP__PORT=8585
# The only folder that is written to, beside /tmp. What settings call `state/` lies in it, and firn.toml may.
WORKDIR /var/lib/firn
VOLUME /var/lib/firn
USER 10001:10001
EXPOSE 8585
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8585/metrics', timeout=4)"]
ENTRYPOINT ["python", "-m", "optimize"]
CMD ["run"]

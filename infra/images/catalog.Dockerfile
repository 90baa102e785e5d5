# The catalog. It refuses to start while it has no key: `key create` makes one.

FROM python:3.11.14-slim-bookworm AS packages
COPY requirements/catalog.txt /tmp/requirements.txt
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
WORKDIR /opt/firn
COPY lake lake
COPY catalog catalog
# A file system that is read-only later keeps no compiled modules.
RUN python -m compileall -q --invalidation-mode unchecked-hash lake catalog

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="Firn catalog" \
      org.opencontainers.image.description="The Iceberg REST catalog, on SQLite or PostgreSQL" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --home-dir /var/lib/firn --create-home firn
COPY --from=packages /opt /opt
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/firn \
    PYTHONUNBUFFERED=1 \
    FIRN_CATALOG_HTTP__HOST=0.0.0.0
# The only folder that is written to, beside /tmp. What settings call `state/` lies in it, and firn.toml may.
WORKDIR /var/lib/firn
VOLUME /var/lib/firn
USER 10001:10001
EXPOSE 8181
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8181/readyz', timeout=4)"]
ENTRYPOINT ["python", "-m", "catalog"]
CMD ["serve"]

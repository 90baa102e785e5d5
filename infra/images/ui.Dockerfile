# The front end. It knows no other room, and nothing but the address of the search API.

FROM python:3.11.14-slim-bookworm AS packages
COPY requirements/ui.txt /tmp/requirements.txt
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
WORKDIR /opt/firn
COPY ui ui
COPY .streamlit .streamlit
# A file system that is read-only later keeps no compiled modules.
RUN python -m compileall -q --invalidation-mode unchecked-hash ui

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="Firn ui" \
      org.opencontainers.image.description="The front end: search, SQL and health in a browser" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --home-dir /var/lib/firn --create-home firn
COPY --from=packages /opt /opt
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/firn \
    PYTHONUNBUFFERED=1
# The only folder that is written to, beside /tmp. What settings call `state/` lies in it, and firn.toml may.
WORKDIR /var/lib/firn
VOLUME /var/lib/firn
USER 10001:10001
EXPOSE 8501
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
ENTRYPOINT ["python", "-m", "ui"]
CMD ["serve", "--host", "0.0.0.0"]

"""One HTTP client for everything that is asked at a loopback address."""

import httpx

# `httpx.get` reads the certificates of all authorities before each request: more than half of the CPU time of
# tests that poll. No connection is kept: the service behind an address may be killed and started again.
http = httpx.Client(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))

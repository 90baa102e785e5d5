"""A tenant at work: `python -m tests.security.support.working_tenant ADDRESS TENANT FILE` searches its logs
until it is ended.

In a process of its own, so that nothing the test does beside it counts as time of the service. A line of the
file per search: when it began, by the machine's monotonic clock, how long it took, both in seconds, and
whether it was answered right. FIRN_QUERY_CLIENT__KEY is its key.
"""

import itertools
import os
import sys
import time

import httpx

from tests.query.support.guarded import SECRET

PAUSE_S = 0.02
ANSWER_S = 60.0


def main(address: str, tenant: str, file: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['FIRN_QUERY_CLIENT__KEY']}"}
    with (
        httpx.Client(base_url=address, headers=headers, timeout=ANSWER_S, trust_env=False) as client,
        open(file, "w", buffering=1) as out,
    ):
        for number in itertools.count():
            asked = {
                "tenant": tenant,
                "from": "2026-09-01",
                "to": "2026-09-02",
                "query": f"{SECRET} {number % 30}",
                "limit": 5,
            }
            began_s = time.monotonic()
            try:
                answer = client.post("/v1/search", json=asked)
                right = answer.status_code == 200 and any(
                    SECRET in str(row["message"]) for row in answer.json()["rows"]
                )
            except httpx.HTTPError:
                right = False
            out.write(f"{began_s} {time.monotonic() - began_s} {int(right)}\n")
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])

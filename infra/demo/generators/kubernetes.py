"""Container output as a node agent ships it: the line under `log`, nested metadata with dotted label names, a
newline at the end."""

from infra.demo.draws import Draws
from infra.demo.moments import rfc3339_nanos

_APPS = ("ingress", "api", "worker", "scheduler", "redis", "coredns", "metrics-agent", "billing")
_LINES = (
    "reconciled {n} objects in {k}ms",
    'level=info msg="lease renewed" holder=node-{k} term={n}',
    "[{n}] connection from 10.42.{k}.7 closed by peer",
    "GET /v1/items/{n} 200 {k}ms",
    'level=warn msg="slow fsync" took={k}ms wal={n}.log',
    "job billing-{n} finished with exit code 0",
)


class Kubernetes:
    """The pods of one cluster. `event` gives a line at a moment with nanoseconds; label sets differ from app
    to app."""

    def __init__(self, draws: Draws, site: str) -> None:
        self._draws = draws
        self._pods = draws.zipf_pool([_pod(draws, app, site) for app in _APPS for _ in range(5)], 0.8)
        self._lines = draws.zipf_pool(_LINES, 0.6)

    def event(self, at_ms: int) -> dict[str, object]:
        draws = self._draws
        line = draws.pick(self._lines).format(n=draws.below(100_000), k=draws.below(250))
        return {
            "@timestamp": rfc3339_nanos(at_ms, draws.below(1_000_000)),
            "stream": "stderr" if draws.uniform() < 0.2 else "stdout",
            "logtag": "F",
            "log": line,
            "kubernetes": draws.pick(self._pods),
        }


def _pod(draws: Draws, app: str, site: str) -> dict[str, object]:
    labels: dict[str, object] = {
        "app.kubernetes.io/name": app,
        "app.kubernetes.io/part-of": site,
        "pod-template-hash": draws.hex(10),
    }
    if app in ("api", "worker", "billing"):
        labels |= {"team": "orders", "app.kubernetes.io/version": f"1.{draws.below(30)}.{draws.below(9)}"}
    pod: dict[str, object] = {
        "pod_name": f"{app}-{labels['pod-template-hash']}-{draws.hex(5)}",
        "namespace_name": "kube-system" if app in ("coredns", "metrics-agent") else "shop",
        "pod_id": f"{draws.hex(8)}-{draws.hex(4)}-4{draws.hex(3)}-a{draws.hex(3)}-{draws.hex(12)}",
        "host": f"node-{draws.below(9)}.{site}",
        "container_name": app,
        "container_image": f"registry.example.com/{app}:1.{draws.below(40)}",
        "labels": labels,
    }
    if app in ("api", "ingress"):
        pod["annotations"] = {"prometheus.io/scrape": "true", "prometheus.io/port": "9102"}
    return pod

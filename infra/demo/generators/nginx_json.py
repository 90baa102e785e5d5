"""nginx access log in JSON, as `log_format escape=json` writes it: flat, numbers beside numbers kept as
text."""

from infra.demo.draws import Draws
from infra.demo.generators.web_traffic import pages, visitors
from infra.demo.moments import rfc3339_offset


class NginxJson:
    """Requests to one site; `event` gives one of them at a moment. `time` has whole seconds, `msec` the
    fraction."""

    def __init__(self, draws: Draws, site: str) -> None:
        self._draws = draws
        self._visitors, self._pages = visitors(draws), pages(draws)
        self._latencies_s = draws.log_normal_pool(0.038, 0.9)
        self._hosts = draws.zipf_pool([f"www.{site}", f"api.{site}", f"static.{site}"])
        self._edges = [f"edge-{number}.{site}" for number in range(1, 5)]
        self._upstreams = [f"10.20.{net}.{host}:8080" for net in range(2) for host in range(11, 17)]

    def event(self, at_ms: int) -> dict[str, object]:
        draws = self._draws
        page, visitor = draws.pick(self._pages), draws.pick(self._visitors)
        status = draws.pick(page.statuses)
        latency_s = draws.pick(self._latencies_s) * (20.0 if status >= 500 else 1.0) if page.backend else 0.0
        sent = 0 if status in (204, 304) else page.size_bytes
        return {
            "time": rfc3339_offset(at_ms),
            "msec": at_ms / 1000,
            "request_id": draws.hex(32),
            "server": draws.pick(self._edges),
            "remote_addr": visitor.address,
            "remote_user": "" if visitor.user == "-" else visitor.user,
            "method": page.method,
            "uri": page.path,
            "host": draws.pick(self._hosts),
            "status": status,
            "body_bytes_sent": sent,
            "request_length": 300 + draws.below(900),
            "request_time": round(latency_s + 0.001, 3),
            "upstream_addr": draws.pick(self._upstreams) if page.backend else "",
            "upstream_response_time": f"{latency_s:.3f}" if page.backend else "",
            "referer": "",
            "user_agent": visitor.agent,
            "http_version": "HTTP/2.0",
            "tls_protocol": visitor.tls,
        }

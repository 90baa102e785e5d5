"""Access log in the combined format of Apache and nginx: one text line a request."""

from infra.demo.draws import Draws
from infra.demo.generators.web_traffic import pages, visitors
from infra.demo.moments import common_log_format


class AccessCombined:
    """Requests to one site; `line` gives one of them at a moment, which the format cuts to whole seconds."""

    def __init__(self, draws: Draws, site: str) -> None:
        self._draws = draws
        self._visitors, self._pages = visitors(draws), pages(draws)
        self._referers = draws.zipf_pool(
            [
                "-",
                f"https://www.{site}/",
                f"https://www.{site}/search?q=zelt",
                "https://www.example.org/gear/tests",
                f"https://{site}/",
            ]
        )

    def line(self, at_ms: int) -> str:
        draws = self._draws
        page, visitor = draws.pick(self._pages), draws.pick(self._visitors)
        status = draws.pick(page.statuses)
        size = "-" if status in (204, 304) else page.size_bytes
        request = f"{page.method} {page.path} HTTP/1.1"
        stamp = common_log_format(at_ms // 1000)
        return (
            f'{visitor.address} - {visitor.user} [{stamp}] "{request}" {status} {size} '
            f'"{draws.pick(self._referers)}" "{visitor.agent}"'
        )

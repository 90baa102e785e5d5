"""Logins that have begun: what Authlib wants to know when a browser comes back, and where its person was. It
lies here, and not in the browser, which only has a mark that it began."""

from collections import OrderedDict

PENDING_MAX = 10_000


class PendingLogins:
    """Texts by names; the oldest of too many go. Has the interface of Authlib's cache."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, str] = OrderedDict()

    async def set(self, name: str, text: str, _lasts_s: int = 0) -> None:
        """Keeps a text; how long it is good for stands in the browser's mark."""
        self._kept[name] = text
        while len(self._kept) > PENDING_MAX:
            self._kept.popitem(last=False)

    async def get(self, name: str) -> str | None:
        """The text; None where there is none."""
        return self._kept.get(name)

    async def delete(self, name: str) -> None:
        """Forgets a text."""
        self._kept.pop(name, None)

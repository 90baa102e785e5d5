"""Visitors and pages of a web shop, shared by the two access-log shapes."""

from dataclasses import dataclass

from infra.demo.draws import Draws

VISITORS = 1_500
PRODUCTS = 400

_AGENTS = (
    (
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 "
        "Safari/537.36"
    ),
    (
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
        "Version/18.6 Mobile/15E148 Safari/604.1"
    ),
    (
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
        "Version/26.0 "
        "Safari/605.1.15"
    ),
    (
        "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Mobile "
        "Safari/537.36"
    ),
    "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0",
    "ShopApp/7.12.3 (Android 16; Pixel 9) okhttp/4.12.0",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "kube-probe/1.33",
    "curl/8.14.1",
    "python-requests/2.32.5",
    "-",
)
_GOODS = (
    "boots",
    "rain-jacket",
    "tent",
    "stove",
    "rope",
    "head-lamp",
    "sleeping-bag",
    "rucksack",
    "ice-axe",
    "schlafmatte",
    "über-hose",
    "canteen",
)
_USERS = ("-", "-", "-", "-", "-", "-", "ana", "bo", "chen", "dilan", "erik", "fatima", "goran", "hana")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: address, browser, the user where a password was asked for."""

    address: str
    agent: str
    user: str
    tls: str


@dataclass(frozen=True, slots=True)
class Page:
    """What is asked for, and how it usually goes."""

    method: str
    path: str
    size_bytes: int
    backend: bool
    statuses: tuple[int, ...]


def visitors(draws: Draws) -> list[Visitor]:
    """A Zipf pool: few visitors (crawlers, office networks) make much of the traffic. Addresses come from
    documentation ranges."""
    agents = draws.zipf_pool(_AGENTS, 0.8)
    nets = ("192.0.2", "198.51.100", "203.0.113")
    made = [
        Visitor(
            address=f"{draws.pick(nets)}.{1 + draws.below(254)}"
            if draws.uniform() < 0.85
            else f"2001:db8:{draws.hex(4)}::{draws.hex(4)}",
            agent=draws.pick(agents),
            user=draws.pick(_USERS),
            tls="TLSv1.3" if draws.uniform() < 0.9 else "TLSv1.2",
        )
        for _ in range(VISITORS)
    ]
    return draws.zipf_pool(made, 0.9)


def pages(draws: Draws) -> list[Page]:
    """A Zipf pool over the pages of a shop: the front page first, its parts, its API, then hundreds of
    products."""
    usual = (200,) * 46 + (304,) * 3 + (404,)
    api = (200,) * 44 + (201, 400, 401, 429, 500, 503)
    fixed = [
        Page("GET", "/", 18_300, True, usual),
        Page("GET", "/assets/app.8f3a1c.js", 214_880, False, (200,) * 6 + (304,) * 4),
        Page("GET", "/assets/site.51b2e0.css", 38_412, False, (200,) * 6 + (304,) * 4),
        Page("GET", "/healthz", 2, True, (200,)),
        Page("GET", "/api/v1/cart", 1_240, True, api),
        Page("POST", "/api/v1/cart/items", 310, True, api),
        Page("GET", "/favicon.ico", 1_150, False, (200, 304)),
        Page("GET", "/search?q=winter%20boots&page=1", 22_840, True, usual),
        Page("POST", "/api/v1/orders", 842, True, api),
        Page("GET", "/account/orders?from=2026-01-01&sort=date", 9_420, True, (200,) * 9 + (302,)),
        Page("POST", "/login", 0, True, (302,) * 8 + (401, 403)),
        Page("GET", "/wp-login.php", 162, False, (404,)),
        Page("GET", "/.env", 162, False, (404, 403)),
        Page("DELETE", "/api/v1/cart/items/8812", 0, True, (204,) * 9 + (404,)),
    ]
    goods = [
        Page(
            "GET",
            f"/products/{_GOODS[number % len(_GOODS)]}-{1000 + number}?ref={draws.hex(6)}",
            12_000 + draws.below(30_000),
            True,
            usual,
        )
        for number in range(PRODUCTS)
    ]
    return draws.zipf_pool([*fixed, *goods], 0.95)

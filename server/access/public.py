"""The short list of what anybody may reach. Everything else needs an account."""

from __future__ import annotations

PUBLIC: frozenset[tuple[str, str]] = frozenset(
    {
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/signin"),
        ("POST", "/signin"),
        ("GET", "/favicon.ico"),
    }
)
STATIC_PREFIX = "/static/"


def is_static(method: str, path: str) -> bool:
    """Files of the pages themselves: styles, scripts, the chart library. They hold nothing of the team."""
    return method in ("GET", "HEAD") and path.startswith(STATIC_PREFIX)


def is_public(method: str, path: str) -> bool:
    """Whether anybody may send ``method`` to ``path``."""
    asked = "GET" if method == "HEAD" else method
    return (asked, path) in PUBLIC or is_static(method, path)

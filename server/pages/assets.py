"""Static files: compressed once in memory, named by content hash, cached for ever.

`web/css/*.css` becomes one `app.css`; a page's script comes with the modules it imports, and `web/js/lib` is there by
itself for what a page imports later; Plotly.js comes from the installed `plotly` package.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response

from server.pages import colours
from server.pages.bundle import bundle

WEB = Path(__file__).resolve().parents[2] / "web"
CSS_ORDER = (
    "tokens.css",
    "base.css",
    "shell.css",
    "components.css",
    "charts.css",
    "pages.css",
    "lists.css",
    "views.css",
)
IMMUTABLE = "public, max-age=31536000, immutable"

mimetypes.add_type("text/javascript", ".js")


@dataclass(frozen=True, kw_only=True)
class Asset:
    """One file ready to send. ``plain`` is made from ``zipped`` for the rare client without gzip."""

    media_type: str
    zipped: bytes

    @classmethod
    def of(cls, name: str, content: bytes, level: int = 9) -> Asset:
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        if media_type.startswith("text/"):
            media_type += "; charset=utf-8"
        return cls(media_type=media_type, zipped=gzip.compress(content, level, mtime=0))

    @property
    def plain(self) -> bytes:
        return gzip.decompress(self.zipped)


def _plotly_file() -> Path:
    """Found without importing the package, which would cost half a second at every start."""
    package = find_spec("plotly")
    assert package is not None, "plotly is a dependency"
    assert package.origin is not None, "plotly has an __init__"
    return Path(package.origin).parent / "package_data" / "plotly.min.js"


_FACTORY = (b" : this, () => {\n", b" : this, (() => {\n")
_FACTORY_END = (b"\n}));", b"\n})));")


def compiled_at_once(library: bytes) -> bytes:
    """Plotly.js with its one large function in parentheses, which changes nothing of what it does.

    Browsers take a function in parentheses as one that is called at once, and compile it while the file still comes,
    beside the page; otherwise they do so when it is called, and the page stands still for some 150 ms. A library that
    is wrapped in another way stays as it is.
    """
    body = library.rstrip()
    if library.count(_FACTORY[0]) != 1 or not body.endswith(_FACTORY_END[0]):
        return library
    return body.replace(*_FACTORY).removesuffix(_FACTORY_END[0]) + _FACTORY_END[1]


class Assets:
    """Every static file of one build of the product; `url` gives the hashed address."""

    def __init__(self, root: Path = WEB) -> None:
        self.files = {"app.css": self._css(root).encode()}
        found = {path.relative_to(root / "js"): path for path in sorted((root / "js").rglob("*.js"))}
        sources = {
            relative.as_posix(): path.read_text("utf-8")
            for relative, path in found.items()
            if relative.parts[0] != "tests"
        }
        for name, source in sources.items():
            self.files[name] = (source if name.startswith("lib/") else bundle(sources, name)).encode()
        self.files["icon.svg"] = (root / "icon.svg").read_bytes()
        digest = hashlib.sha256()
        for name, content in self.files.items():
            digest.update(name.encode() + b"\0" + content)
        self.version = digest.hexdigest()[:16]
        self._served = {name: Asset.of(name, content) for name, content in self.files.items()}

    @staticmethod
    def _css(root: Path) -> str:
        return colours.stylesheet() + "\n".join((root / "css" / name).read_text("utf-8") for name in CSS_ORDER)

    @cached_property
    def _plotly(self) -> tuple[str, Asset]:
        content = compiled_at_once(_plotly_file().read_bytes())
        return hashlib.sha256(content).hexdigest()[:16], Asset.of("plotly.min.js", content, level=6)

    @cached_property
    def plotly_style_id(self) -> str:
        """The id of the map stylesheet that Plotly adds unless an element of that id is there; our policy forbids it.

        The pages draw no maps, so an empty element of that id stands in for it. Empty when Plotly adds none.
        """
        found = re.search(rb'getElementById\("([0-9a-f]{64})"\)', _plotly_file().read_bytes())
        return found.group(1).decode() if found else ""

    def url(self, name: str) -> str:
        version = self._plotly[0] if name == "plotly.min.js" else self.version
        return f"/static/{version}/{name}"

    def find(self, version: str, name: str) -> Asset | None:
        """The file at a hashed address, or None when the hash is not of this build."""
        if name == "plotly.min.js":
            return self._plotly[1] if version == self._plotly[0] else None
        return self._served.get(name) if version == self.version else None


assets = Assets()
router = APIRouter()


@router.get("/static/{version}/{name:path}", include_in_schema=False)
def static_file(version: str, name: str, request: Request) -> Response:
    """A static file at its hashed address; an address of another build is 404, never another build's content."""
    asset = assets.find(version, name)
    if asset is None:
        raise HTTPException(404, f"no static file {name!r} in this build: reload the page")
    headers = {"Cache-Control": IMMUTABLE, "Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.zipped, media_type=asset.media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(asset.plain, media_type=asset.media_type, headers=headers)

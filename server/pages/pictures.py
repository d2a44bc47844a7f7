"""Pictures that runs made: small versions in one sheet, so that a page costs one request for all of them."""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from PIL import Image, UnidentifiedImageError
from sqlalchemy.orm import Session

from server.db.tables import Artifact
from server.records.artifacts import artifact_with_content, artifacts_of

TILE_WIDTH, MAX_TILE_HEIGHT = 320, 480
MAX_TILES = 24
PICTURES = frozenset({"image/png", "image/jpeg", "image/webp"})
_CACHE_SHEETS = 16


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Several pictures side by side as WebP. ``boxes`` are (x, width, height) of each tile."""

    content: bytes
    boxes: tuple[tuple[int, int, int], ...]
    width: int
    height: int


_sheets: OrderedDict[str, Sheet] = OrderedDict()
_lock = Lock()


def pictures_of(session: Session, run_ids: Sequence[int]) -> list[Artifact]:
    """The picture artifacts of the runs, without their bytes."""
    found = artifacts_of(session, run_ids) if run_ids else []
    return [artifact for artifact in found if artifact.media_type in PICTURES]


def sheet_key(artifacts: Sequence[Artifact]) -> str:
    """Names a sheet by its content: other pictures, other key."""
    return hashlib.sha256("".join(artifact.sha256 for artifact in artifacts).encode()).hexdigest()[:16]


def sheet_of(session: Session, artifacts: Sequence[Artifact]) -> Sheet:
    """The sheet of these pictures; made once, then kept in memory."""
    key = sheet_key(artifacts)
    with _lock:
        if key in _sheets:
            _sheets.move_to_end(key)
            return _sheets[key]
    contents = [artifact_with_content(session, artifact.id) for artifact in artifacts]
    sheet = compose([found.content if found is not None else b"" for found in contents])
    with _lock:
        _sheets[key] = sheet
        while len(_sheets) > _CACHE_SHEETS:
            _sheets.popitem(last=False)
    return sheet


def compose(contents: Sequence[bytes]) -> Sheet:
    """Scale each picture to the tile width and put them in a row; one that cannot be read is an empty tile."""
    tiles = [_tile(content) for content in contents[:MAX_TILES]]
    width, height = sum(tile.width for tile in tiles) or 1, max((tile.height for tile in tiles), default=1)
    canvas = Image.new("RGB", (width, height))
    boxes, x = [], 0
    for tile in tiles:
        canvas.paste(tile, (x, 0))
        boxes.append((x, tile.width, tile.height))
        x += tile.width
    buffer = io.BytesIO()
    canvas.save(buffer, "WEBP", quality=82)
    return Sheet(content=buffer.getvalue(), boxes=tuple(boxes), width=width, height=height)


def _tile(content: bytes) -> Image.Image:
    try:
        with Image.open(io.BytesIO(content)) as opened:
            opened.draft("RGB", (TILE_WIDTH, MAX_TILE_HEIGHT))
            picture = opened.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
        return Image.new("RGB", (TILE_WIDTH, TILE_WIDTH * 3 // 4))
    scale = min(TILE_WIDTH / picture.width, MAX_TILE_HEIGHT / picture.height)
    if scale < 1:
        target = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(target, Image.Resampling.LANCZOS)
    return picture

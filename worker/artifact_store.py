"""Files that workers on several hosts share: a folder that all of them mount, or anything fsspec reaches.

A file appears under its name whole or not at all, and is copied back under a temporary name, so that a worker that dies
leaves nothing half-written. The names are those of checkpoints, which hold a checksum of the content.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import fsspec


class ArtifactsUnusable(Exception):
    """The address of the settings leads nowhere; the message says what to do."""


class ArtifactStore:
    """Files by name under one address. Every method may raise whatever the file system behind it raises."""

    def __init__(self, url: str) -> None:
        try:
            self._system, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ArtifactsUnusable(
                f"AMPBOARD_ARTIFACTS={url!r} cannot be used ({error}): name a folder, or install the fsspec package of "
                "that protocol on this host (s3fs for s3://)"
            ) from error

    def put(self, path: Path, name: str) -> None:
        """Copy a file there."""
        target = self._path(name)
        self._system.makedirs(target.rpartition("/")[0], exist_ok=True)
        temporary = f"{target.rpartition('/')[0]}/.{uuid.uuid4().hex}"  # where puts are atomic this is a copy more
        try:
            self._system.put_file(str(path), temporary)
            self._system.mv(temporary, target)
        except BaseException:
            if self._system.exists(temporary):
                self._system.rm_file(temporary)
            raise

    def get(self, name: str, path: Path) -> bool:
        """Copy a file here; False if there is none of that name."""
        source = self._path(name)
        if not self._system.exists(source):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"fetching-{os.getpid()}-{uuid.uuid4().hex}")
        try:
            self._system.get_file(source, str(temporary))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without it; empty if there is none."""
        self._system.invalidate_cache()
        path = self._path(folder)
        if not self._system.isdir(path):
            return []
        return sorted(str(found).rstrip("/").rpartition("/")[2] for found in self._system.ls(path, detail=False))

    def drop(self, name: str) -> None:
        """Delete a file, or a folder with all it holds; one that is gone already is none's fault."""
        path = self._path(name)
        if self._system.exists(path):
            self._system.rm(path, recursive=True)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

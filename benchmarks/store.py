"""Finished results on disk, one line each, so that an interrupted benchmark goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from threading import Lock
from typing import Any

__all__ = ["Store", "key"]


def key(**parts: Any) -> str:
    """A name for a result: a digest of everything it depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


class Store:
    """Results by key; a new one is on disk before anything else happens."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        path.parent.mkdir(exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        self._path, self._lock, self._found = path, Lock(), {}
        if path.exists():
            for line in path.read_text().splitlines():
                if line.endswith("}"):  # not one that was cut off
                    result = json.loads(line)
                    self._found[result["key"]] = result

    def __len__(self) -> int:
        return len(self._found)

    def get(self, name: str) -> dict[str, Any] | None:
        """The result of that name, if it is there."""
        return self._found.get(name)

    def put(self, result: dict[str, Any]) -> None:
        """Keep a result."""
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")
            self._found[result["key"]] = result

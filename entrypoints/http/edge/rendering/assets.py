"""The static files of the pages. Nothing is loaded from other hosts."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

PAGES: Final = Path(__file__).parents[2] / "pages"  # the folder with templates and assets


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file. Browsers may cache it forever, because its name changes with its content."""

    path: Path
    headers: Mapping[str, str]

    def body(self) -> bytes:
        """Return the content. It is not cached in memory: the script of the API page is large, and each browser loads it once."""
        return self.path.read_bytes()


_FILES = {
    "icon.svg": "image/svg+xml",
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "docs/docs.js": "text/javascript; charset=utf-8",
    "docs/docs.css": "text/css; charset=utf-8",
    "docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "docs/swagger-ui.css": "text/css; charset=utf-8",
}


def _load_assets() -> tuple[dict[str, Asset], dict[str, str]]:
    assets, names = {}, {}
    for file, content_type in _FILES.items():
        path = PAGES / "assets" / file
        fingerprint = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        name = f"{path.stem}.{fingerprint}{path.suffix}"
        headers = {"Content-Type": content_type, "Cache-Control": "public, max-age=31536000, immutable", "ETag": f'"{fingerprint}"'}
        assets[name] = Asset(path, MappingProxyType(headers))
        names[path.name] = name
    return assets, names


# Only names in this table are served, so a client's input never becomes a file path.
_assets, _asset_names = _load_assets()


def asset(name: str) -> Asset | None:
    """Return the file for /assets/<name>, or None."""
    return _assets.get(name)


def asset_url(file: str) -> str:
    """Return the URL of a file such as `icon.svg`, with the fingerprint in its name."""
    return f"/assets/{_asset_names[file]}"

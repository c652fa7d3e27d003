"""The pages' static files. Nothing is loaded from another host."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from types import MappingProxyType
from typing import Final

HTTP: Final = Path(__file__).parents[2]  # the folder with templates and assets


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file. Browsers may cache it forever, because its name changes with its content."""

    path: Path
    headers: Mapping[str, str]

    def body(self) -> bytes:
        """Return the content. It is not cached in memory: the API page's script is large, and a browser loads it once."""
        return self.path.read_bytes()


_CONTENT_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_OWN_FILES = (
    *("icon.svg", "pages.css", "console.css", "console.js", "branding.js", "passkeys.js"),
    *("docs.css", "docs.js", "documentation.css", "documentation.js"),
)
_SWAGGER_UI = Path(str(distribution("flask-swagger-ui").locate_file("flask_swagger_ui/dist")))  # its code for Flask is not used
_FILES = (
    *(HTTP / "assets" / name for name in _OWN_FILES),
    *(_SWAGGER_UI / name for name in ("swagger-ui.css", "swagger-ui-bundle.js")),
)


def _load_assets() -> tuple[dict[str, Asset], dict[str, str]]:
    assets, names = {}, {}
    for path in _FILES:
        fingerprint = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        name = f"{path.stem}.{fingerprint}{path.suffix}"
        headers = {
            "Content-Type": _CONTENT_TYPES[path.suffix],
            "Cache-Control": "public, max-age=31536000, immutable",
            "ETag": f'"{fingerprint}"',
        }
        assets[name] = Asset(path, MappingProxyType(headers))
        names[path.name] = name
    return assets, names


# Only names in this table are served, so a client's input never becomes a file path.
_assets, _asset_names = _load_assets()


def asset(name: str) -> Asset | None:
    """Return the file for /assets/<name>, or None."""
    return _assets.get(name)


def asset_url(file: str) -> str:
    """Return the URL for a file such as `icon.svg`, with the fingerprint in its name."""
    return f"/assets/{_asset_names[file]}"

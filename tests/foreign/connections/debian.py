"""Identity providers from Debian packages, which `./run test foreign --all` extracts into a folder."""

import os
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(os.environ.get("GATEHOUSE_PROVIDERS", "/nowhere"))


def requires(name: str, path: str) -> pytest.MarkDecorator:
    """Skip a module's tests if this file from its provider is missing."""
    return pytest.mark.skipif(not (ROOT / path).exists(), reason=f"only `./run test foreign --all` extracts {name} from Debian's packages")


def find(pattern: str) -> Path:
    """Return the file or folder with this pattern, whatever Debian version it comes from."""
    return next(ROOT.glob(pattern))

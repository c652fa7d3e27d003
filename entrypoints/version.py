"""The version of this build: what `/health` reports (decisions, point 31)."""

from typing import Final

VERSION: Final = "0.9.0"

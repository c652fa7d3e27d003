"""The version of this build, as `/health` reports it."""

from typing import Final

VERSION: Final = "0.10.0"

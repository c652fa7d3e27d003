"""Tests by area. `tests/proof` holds the long and general proofs; `tests/support` and `tests/fakes` serve all of them."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

"""Tests by area. `tests/proof` holds the long and general proofs; all tests use `tests/support` and `tests/fakes`."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

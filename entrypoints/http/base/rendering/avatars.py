"""The pictures of people and organizations that have none: their initials on a color."""

import re
from hashlib import sha256
from typing import Final
from unicodedata import normalize

HUES: Final = 8  # the classes `hue-0` to `hue-7` of pages.css


def initials(name: str) -> str:
    """Return one or two letters for a name or an email address: of the first and the last word."""
    text = normalize("NFC", name)
    words = re.findall(r"[^\W_]+", text if " " in text else text.partition("@")[0])
    return "".join(word[0].upper()[0] for word in (*words[:1], *words[1:][-1:])) or "?"


def hue(key: object) -> int:
    """Return the number of the color for an id. It is always the same for the same id."""
    return sha256(str(key).encode()).digest()[0] % HUES

"""Colours that can be read, whatever colour somebody wants: by the contrast of WCAG 2, which asks for 4.5:1 in text and for 3:1 in the
outline of a control (1.4.3 and 1.4.11)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from core.kernel.errors import Invalid

TEXT: Final = 4.5
OUTLINE: Final = 3.0
_HEX = re.compile("#[0-9a-f]{6}")
_STEPS: Final = 40  # from a colour to black or to white
_HOVER: Final = 6  # as many of them, for what is below a pointer


class ColorInvalid(Invalid):
    """A colour is written as "#" and six hexadecimal digits, such as "#0b5d66"."""


@dataclass(frozen=True, slots=True)
class Color:
    """Red, green and blue of sRGB, each from 0 to 255."""

    red: int
    green: int
    blue: int

    @classmethod
    def parse(cls, text: str) -> Color:
        """Raises ColorInvalid."""
        lowered = text.lower()
        if not text.isascii() or not _HEX.fullmatch(lowered):
            raise ColorInvalid
        return cls(*bytes.fromhex(lowered[1:]))

    def __str__(self) -> str:
        return f"#{self.red:02x}{self.green:02x}{self.blue:02x}"

    @property
    def luminance(self) -> float:
        """How bright it is to the eye, from 0 for black to 1 for white."""
        red, green, blue = (
            share / 12.92 if (share := part / 255) <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
            for part in (self.red, self.green, self.blue)
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def towards(self, other: Color, steps: int) -> Color:
        """The colour so many of the steps on the way to another one."""
        pairs = ((self.red, other.red), (self.green, other.green), (self.blue, other.blue))
        return Color(*(round(ours + (theirs - ours) * steps / _STEPS) for ours, theirs in pairs))


BLACK: Final = Color(0, 0, 0)
WHITE: Final = Color(255, 255, 255)


def contrast(one: Color, other: Color) -> float:
    """From 1 for two colours of one brightness to 21 for black and white."""
    darker, brighter = sorted((one.luminance, other.luminance))
    return (brighter + 0.05) / (darker + 0.05)


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a colour becomes in one colour scheme."""

    accent: Color  # of links and of what is in focus
    accent_hover: Color
    button: Color  # the colour itself, with a label in black or white
    button_hover: Color
    label: Color
    edge: Color  # of the button, so that it stands out where its own colour does not


@dataclass(frozen=True, slots=True)
class Palette:
    """What a colour becomes on pages and in mails."""

    light: Scheme
    dark: Scheme


# What pages and mails are written on (`pages.css`, `layout.html`): of the two grounds of a scheme the one that text stands out from less.
LIGHT_GROUND: Final = Color.parse("#f2f5f6")
DARK_GROUND: Final = Color.parse("#172024")


@lru_cache(maxsize=256)
def palette(color: Color) -> Palette:
    return Palette(light=_scheme(color, LIGHT_GROUND, BLACK), dark=_scheme(color, DARK_GROUND, WHITE))


def _scheme(color: Color, ground: Color, pole: Color) -> Scheme:
    """`pole` is the end that every colour stands out at from this ground."""
    accent = next(
        nearer for steps in range(_STEPS + 1) if contrast(nearer := color.towards(pole, steps), ground) >= TEXT or steps == _STEPS
    )
    # Where white does not stand out enough, black does: the product of the two contrasts is always 21.
    label = WHITE if contrast(WHITE, color) >= TEXT else BLACK
    return Scheme(
        accent=accent,
        accent_hover=accent.towards(pole, _HOVER),
        button=color,
        button_hover=color.towards(BLACK if label is WHITE else WHITE, _HOVER),  # away from its label
        label=label,
        edge=color if contrast(color, ground) >= OUTLINE else accent,
    )

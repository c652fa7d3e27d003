"""Scope presets: links that open a form with some checkboxes checked.

With scripts, a preset checks the boxes in place, and all other fields stay as they are typed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import Field

from core.kernel.api_scopes import ApiScope
from core.kernel.roles import Permission
from entrypoints.http import kit
from entrypoints.http.base.rendering.labels import label

READ, ALL = "read", "all"
OF_APPLICATION = {"service": "Application"}


@dataclass(frozen=True, slots=True)
class Preset:
    """A choice of checkboxes: its name in addresses, its label, and the box names."""

    name: str
    label: str
    boxes: tuple[str, ...]


class PresetQuery(kit.Query):
    """The preset that fills the form."""

    preset: str | None = Field(None, description="The preset that the form starts with.")


def of_scopes(scopes: Iterable[ApiScope], prefix: str) -> list[Preset]:
    """Return the presets for our API's scopes. A scope's checkbox has `prefix` and the scope as its name."""
    return _presets([(f"{prefix}{scope}", label(scope.area), scope.endswith(":read")) for scope in scopes])


def of_permissions(permissions: Iterable[Permission], prefix: str) -> list[Preset]:
    """Return the presets for API key permissions. A permission's checkbox has `prefix` and the permission as its name."""
    parts = [(permission, *permission.split(":")) for permission in permissions]
    return _presets([(f"{prefix}{permission}", label(area, OF_APPLICATION), action == "read") for permission, action, area in parts])


def boxes_of(presets: Sequence[Preset], name: str | None) -> dict[str, str]:
    """Return a preset's checked boxes as form fields, or none if it does not exist."""
    return dict.fromkeys(next((preset.boxes for preset in presets if preset.name == name), ()), "yes")


def _presets(boxes: Sequence[tuple[str, str, bool]]) -> list[Preset]:
    """Return the presets for boxes. Every box has its name, its area's label, and whether it only reads."""
    areas = dict.fromkeys(area for _, area, _ in boxes)
    return [
        Preset(READ, "Read only", tuple(box for box, _, reads in boxes if reads)),
        Preset(ALL, "Everything", tuple(box for box, _, _ in boxes)),
        *(Preset(area, area, tuple(box for box, of, _ in boxes if of == area)) for area in areas),
    ]

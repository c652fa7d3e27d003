"""What the doctor says of an installation that has something wrong with it."""

import importlib.metadata

import pytest

from entrypoints import doctor
from entrypoints.doctor import Health


def test_what_is_installed_here_is_above_every_floor() -> None:
    assert [finding.health for finding in doctor.libraries()] == [Health.GOOD]


@pytest.mark.parametrize("library", doctor.FLOORS)
def test_a_library_below_its_floor_is_bad(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.9.99" if name == library else real(name))
    [bad, _] = doctor.libraries()
    assert bad.health is Health.BAD
    assert f"install {doctor.FLOORS[library]} or later" in bad.text


@pytest.mark.parametrize(
    ("version", "health"),
    [((3, 11, 14), Health.WARNING), ((3, 11, 15), Health.GOOD), ((3, 13, 11), Health.WARNING), ((3, 14, 3), Health.GOOD)],
)
def test_an_interpreter_without_its_security_fix_is_warned_of(version: tuple[int, int, int], health: Health) -> None:
    assert doctor.interpreter(version).health is health


def test_a_misspelt_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSO_SMPT_URL", "smtp://mail.example.com")
    assert any(finding.health is Health.WARNING and "SSO_SMPT_URL" in finding.text for finding in doctor.unknown_settings())


def test_lxml_and_xmlsec_share_their_library() -> None:
    assert doctor.xml().health is Health.GOOD

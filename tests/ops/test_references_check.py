"""The reference check: which references resolve, and which forms it refuses."""

from pathlib import Path, PurePosixPath

import pytest

from ops.checks import references


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a requirement, two decisions, a decision record and a page with a heading."""
    (tmp_path / "docs/specification").mkdir(parents=True)
    (tmp_path / "docs/adr").mkdir()
    (tmp_path / "docs/specification/security.md").write_text(
        '<a id="a-7"></a>\n<a id="decision-41"></a>\n<a id="decision-42"></a>\n## Passkeys\n'
    )
    (tmp_path / "docs/adr/0014-forward.md").write_text("# 14. Forward `it`, please\n")
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def faults(root: Path, name: str, text: str) -> list[tuple[int, str]]:
    return [(fault.line, fault.reference) for fault in references.faults_in(root, PurePosixPath(name), text)]


def test_canonical_references_resolve_also_across_lines(root: Path) -> None:
    text = "# (security A-7, decision 41)\n# (decisions 41,\n# 42) and security\n# A-7, docs/adr/0014, docs/specification/security.md\n"
    text += "# security #passkeys\n"
    assert faults(root, "core/a.py", text) == []


def test_unknown_targets_are_faults(root: Path) -> None:
    text = "# security A-7, A-8, security #pins\n# decisions 42, 43\n# docs/adr/0015\n# docs/specification/b.md\n"
    assert sorted(faults(root, "core/a.py", text)) == [
        (1, "A-8"),
        (1, "security #pins"),
        (2, "decisions 42, 43"),
        (3, "docs/adr/0015"),
        (4, "docs/specification/b.md"),
    ]


def test_an_id_that_is_defined_twice_is_a_fault(root: Path) -> None:
    page, text = (
        "docs/specification/decisions.md",
        '<a id="decision-43"></a>\n<a id="decision-41"></a>\n```\n<a id="decision-42"></a>\n```\n',
    )
    (root / page).write_text(text)
    assert faults(root, page, text) == [(2, "decision-41")]


@pytest.mark.parametrize(
    "text",
    [
        "(A-7)",
        "security.md A-7",
        "decisions, point 41",
        "(points 41)",
        "decisions 41 to 42",
        "identity.md",
        "../shared",
        "ADR 4",
        "endpoints.json",
    ],
)
def test_refused_forms_are_faults(root: Path, text: str) -> None:
    assert [line for line, _ in faults(root, "core/a.py", f"\n# {text}\n")][:1] == [2]


def test_similar_text_is_no_reference(root: Path) -> None:
    text = "# P-256, X-5t, SHA-1, docs/b, a decision, the point, my-identity.md, UTF-8, decision_41\n"
    assert faults(root, "core/a.py", text) == []
    assert faults(root, "tests/a.py", 'open("endpoints.json")') == []


def test_relative_links_and_anchors_resolve(root: Path) -> None:
    good = "[a](adr/0014-forward.md#14-forward-it-please) [b](https://example.com) [c](#d)\n\n## D\n\n```\n[e](f.md)\n```\n\n"
    text = f"{good}[g](h.md)\n[i](adr/0014-forward.md#j)\n"
    page = root / "docs/page.md"
    page.write_text(text)
    assert faults(root, "docs/page.md", text) == [(9, "h.md"), (10, "adr/0014-forward.md#j")]


def test_the_command_fails_if_a_reference_does_not_resolve(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert references.main(root) == 0
    (root / "core").mkdir()
    (root / "core/a.py").write_text("# security A-9\n")
    assert references.main(root) == 1
    assert "core/a.py:1: A-9: has no anchor" in capsys.readouterr().out

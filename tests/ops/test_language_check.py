"""The language check: which text counts as prose, and which phrases it counts."""

from pathlib import Path, PurePosixPath

import pytest

from ops.checks import language

MODULE = '''"""Whom to ask."""

LABEL = "whom to ask"
MESSAGE = "Ask whoever invited you."


def test_nobody_signs_in() -> None:
    """Return the
    state, what it
    is."""
    # a comment about what
    # it was
    return None  # once more
'''


def found_in(name: str, source: str) -> list[tuple[int, str]]:
    path = PurePosixPath(name)
    reader = language.reader_for(path)
    assert reader is not None
    return sorted((hit.line, hit.phrase) for prose in reader(source) for hit in language.hits_in(path, prose))


def test_python_prose_is_docstrings_comments_sentences_and_test_names() -> None:
    assert found_in("core/a.py", MODULE) == [
        (1, "whoever"),
        (4, "whoever"),
        (7, "somebody"),
        (9, "what is"),
        (11, "what is"),
        (13, "once more"),
    ]


def test_markdown_prose_leaves_out_code_and_questions() -> None:
    source = "# What is this?\n\nIn `whose` and\n\n```\nwhom\n```\n\nhere is what is\n[meanwhile][1]\n"
    assert found_in("README.md", source) == [(9, "what is"), (10, "meanwhile")]


def test_template_prose_leaves_out_tags_and_jinja_but_not_the_texts_of_macros() -> None:
    source = '<p title="whom">\n{{ whom }} by\nnow</p>\n{{ ui.field("code", hint="It is for good.") }}{% if whose %}'
    assert found_in("adapters/email/templates/a.html", source) == [(2, "by now"), (4, "for good")]


def test_other_kinds_have_comments_or_no_prose() -> None:
    assert found_in("ops/a.yaml", "whose: 1 # of their own\n") == [(1, "of its own")]
    assert found_in("ops/a.lua", "whose = 1 -- any more\n") == [(1, "any more")]
    assert found_in("entrypoints/a.css", "a {} /* those\nwho */") == [(1, "those who")]
    assert language.reader_for(PurePosixPath("ops/a.json")) is None


def test_the_check_fails_above_the_bar_and_shows_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").touch()
    for name in ("core", "assets/docs", ".venv"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "assets/docs/a.css").write_text("/* whose */\n")
    (tmp_path / ".venv/a.py").write_text("# whose\n")
    module = tmp_path / "core/a.py"
    (tmp_path / "README.md").write_text("Plain words only.\n")
    monkeypatch.chdir(tmp_path)

    module.write_text('"""Plain words only."""\n')
    assert language.main([]) == 0

    module.write_text('"""Plain words.\n\nAnd whose?"""\n')
    assert language.main([]) == 1, "one layer is enough"
    assert language.main(["--show", "core"]) == 1
    assert "core/a.py:3: whose: And whose?" in capsys.readouterr().out

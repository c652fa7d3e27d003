"""The name check: which names in backticks do not exist."""

from pathlib import Path

from ops.checks.names import find_stale


def test_names_that_stand_only_in_comments_and_docstrings_are_found(tmp_path: Path) -> None:
    for name, text in {
        "core/sessions.py": '"""Raises: the errors of `rotate` and `gone_one`."""\n# `sessions.end()`, `core/sessions.py`, `gone.py`\n',
        "core/users.py": 'def rotate() -> None:\n    """Do.\n\n    As `gone_two` in `table`.\n    """\n    end("column")\n',
        "adapters/a.sql": "create table users;\n",
        "adapters/b.py": "# `column`, ``gone``, `gone four`, `scope=gone`\n",
        "tests/a.py": "gone_one = 1  # `gone`\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(find_stale(tmp_path)) == [
        "core/sessions.py:1: gone_one does not exist",
        "core/sessions.py:2: gone.py does not exist",
        "core/users.py:4: gone_two does not exist",
    ]

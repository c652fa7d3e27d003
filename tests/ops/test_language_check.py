"""The language check: which phrases it refuses, and where it looks for them."""

from pathlib import Path

import pytest

from ops.checks import language


def test_the_check_prints_each_phrase_of_the_project_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "core/a.py": '"""Plain words, which are no longer hard."""\n\n# The users for\n# good, and Meanwhile the rest.\n',
        "README.md": "`--kill-whom` is an option, to whom it may concern.\n",
        "adapters/postgres/migrations/0001_a.sql": "-- whom\n",
        ".venv/a.py": "# whom\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert language.main(tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == ["README.md:1: whom", "core/a.py:3: for # good", "core/a.py:4: Meanwhile"]
    (tmp_path / "README.md").unlink()
    (tmp_path / "core/a.py").write_text("# Plain words only.\n")
    assert language.main(tmp_path) == 0

"""The language check: which sentences it counts, and what it prints."""

from pathlib import Path

import pytest

from ops.checks import language


def test_the_check_prints_every_rate_above_its_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = '"""Check rate-limit tokens."""\n\nOTHER = "the end of the name of others"  # A client key.\n'
    chained = '"""Check the tokens\nof the limit of rates."""\n\n\ndef f():\n    """Return each."""  # noqa: D400\n'
    for name, text in {"core/a.py": chained, "core/b.py": plain, "ports/a.py": plain, "README.md": "of the name of the others"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert language.main(tmp_path) == 1
    assert [line.split(" matches of ")[0] for line in capsys.readouterr().out.splitlines()] == ["core: 55.6", "core: 111.1", "core: 55.6"]
    (tmp_path / "core/a.py").write_text(plain)
    assert language.main(tmp_path) == 0


def test_the_check_reads_the_prose_of_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skipped = (
        "<!-- begin generated: a -->\nof the name of each\n<!-- end generated: a -->\n\n```sh\none\n```\n[A](the-name-of-the-others.md)\n"
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(f"{skipped}A client key.\n")
    assert language.main(tmp_path) == 0
    (tmp_path / "docs" / "a.md").write_text(f"{skipped}The name of the key\nof both.\n")
    assert language.main(tmp_path) == 1
    assert len(capsys.readouterr().out.splitlines()) == 3

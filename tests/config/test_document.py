"""docs/flags.md is what the fields say."""

from pathlib import Path

from megalite.config.document import document
from megalite.config.fields import all_fields

FLAGS = Path(__file__).parents[2] / "docs" / "flags.md"


def test_the_committed_page_is_the_generated_one():
    assert FLAGS.read_text(encoding="utf-8") == document(), "run: python -m megalite.config.document > docs/flags.md"


def test_the_page_covers_every_field():
    rows = [line for line in document().splitlines() if line.startswith("| `--")]
    assert all(any(row.startswith(f"| `{field.flag}") for row in rows) for field in all_fields().values())


def test_rows_have_as_many_cells_as_their_heads():
    counts = set()
    for line in document().splitlines():
        if line.startswith("| flag"):
            cells = line.count("|")
        if line.startswith("|"):
            counts.add(line.replace("\\|", "").count("|") == cells)
    assert counts == {True}

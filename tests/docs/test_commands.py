"""Every command that the documentation shows works as it is written.

The ``bash`` blocks of a page run in their order, in a directory of the page's own: it has the programs of the
repository and ``corpus.jsonl``, a few documents of text. Blocks that are not to be run are fenced as ``console``.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {
    str(path.relative_to(ROOT)): BLOCK.findall(path.read_text(encoding="utf-8"))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}


@pytest.fixture
def directory(tmp_path):
    for name in ("examples", "tools", "pretrain_gpt.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    sources = sorted((ROOT / "megalite" / "data").glob("*.py"))
    documents = [json.dumps({"text": source.read_text(encoding="utf-8")}) + "\n" for source in sources]
    (tmp_path / "corpus.jsonl").write_text("".join(documents), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks])
def test_the_commands_of(page, directory):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for block in PAGES[page]:
        command = ["bash", "-euo", "pipefail", "-c", block]
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\nends with status {done.returncode}:\n{done.stdout}{done.stderr}"


def test_the_readme_shows_the_way_from_text_to_a_resumed_run():
    commands = "".join(PAGES["README.md"])
    for program in ("tools/train_tokenizer.py", "tools/preprocess_data.py", "python pretrain_gpt.py", "torchrun"):
        assert program in commands

"""The commands of docs/preprocessing.md, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from megalite.data.indexed import IndexedDataset
from megalite.data.tokenizers import TokenizerOptions, build_tokenizer

ROOT = Path(__file__).parent.parent.parent


def test_the_commands_make_a_corpus(tmp_path):
    block = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "preprocessing.md").read_text(), re.DOTALL)[0]
    (tmp_path / "corpus.jsonl").write_text(
        '{"text": "def f(x):\\n    return x + 1\\n"}\n{"text": "Another document."}\n'
    )
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euc", block], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True, capture_output=True
    )
    model = str(tmp_path / "tokenizer")
    tokenizer = build_tokenizer(TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=model))
    corpus = IndexedDataset(tmp_path / "data" / "code_text_document")
    assert [tokenizer.decode(tokens) for tokens in corpus] == [
        "def f(x):\n    return x + 1\n<|endoftext|>", "Another document.<|endoftext|>"
    ]

import json
import random
import sys

import pytest

from megalite.log import logger
from megalite.train.pretrain import pretrain
from tests.e2e.launch import ROOT, run


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Prefix of a corpus of 80 documents over the ids 0 to 99, made by the real tool; 100 ends a document."""
    directory = tmp_path_factory.mktemp("corpus")
    dice = random.Random(0)
    with open(directory / "corpus.jsonl", "w") as file:
        for number in range(80):
            first, step = dice.randrange(100), dice.choice((1, 3, 7))
            length = dice.randrange(10, 150)
            ids = [(first + step * i) % 100 if dice.random() < 0.9 else dice.randrange(100) for i in range(length)]
            file.write(json.dumps({"text": " ".join(map(str, ids))}) + "\n")
    tool = [sys.executable, ROOT / "tools" / "preprocess_data.py", "--append-eod"]
    tokenizer = ["--tokenizer-type", "NullTokenizer", "--vocab-size", "100"]
    done = run([*tool, *tokenizer, "--input", directory / "corpus.jsonl", "--output-prefix", directory / "corpus"])
    assert done.status == 0, done.err
    return str(directory / "corpus_text_document")


@pytest.fixture
def failing(monkeypatch):
    """A function that starts training as one of ``world_size`` processes and returns the error's text."""

    def fail(error, argv, world_size=1):
        monkeypatch.setenv("WORLD_SIZE", str(world_size))
        with pytest.raises(error) as caught:
            pretrain(argv)
        return str(caught.value)

    return fail

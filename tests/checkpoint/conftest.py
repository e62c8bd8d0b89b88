import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def public_directory():
    """A directory that every user can reach, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        path = Path(parent) / "save"
        path.mkdir()
        yield path
        path.chmod(0o755)

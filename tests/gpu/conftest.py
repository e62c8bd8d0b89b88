"""These tests run on a GPU; where there is none they are not collected. ``make gpu`` runs them."""

import torch

collect_ignore_glob = [] if torch.cuda.is_available() else ["test_*.py"]

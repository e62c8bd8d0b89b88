"""Update rules; the directory is the registry of ``--optimizer``. Each file defines ``Rule`` (see ``optim/rule.py``)."""

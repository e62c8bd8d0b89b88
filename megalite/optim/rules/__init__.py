"""Update rules: the registry of ``--optimizer``. Each file defines a class ``Rule`` (see ``optim/rule.py``)."""

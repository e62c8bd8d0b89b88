"""What can be trained: the directory is the registry of ``--model-type``.

Each file has ``train(texts, request) -> tokenizers.Tokenizer``, which gives the special tokens of the request the first
ids, and ``DEFAULT_PRESET``, whose special tokens they are unless others are asked for.
"""

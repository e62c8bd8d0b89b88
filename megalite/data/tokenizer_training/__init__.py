"""Training tokenizers on a corpus: the body of ``tools/train_tokenizer.py``."""

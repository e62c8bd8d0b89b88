"""Text to .bin/.idx corpora, and text to tokenizers: the bodies of tools/preprocess_data.py and tools/train_tokenizer.py."""

"""Text to .bin/.idx corpora: the body of tools/preprocess_data.py."""

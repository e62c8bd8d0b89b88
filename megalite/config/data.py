"""Which text is read and how it becomes samples."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """data: corpora, splits and tokenizer"""

    data_path: tuple[str, ...] = ()
    """Prefixes of .bin/.idx files: PREFIX, several of them, or WEIGHT PREFIX WEIGHT PREFIX ... for a weighted blend."""
    split: str | None = None
    """Shares of documents for training, validation and test, as in 969,30,1; only with --data-path. Default:
    969,30,1."""
    train_data_path: tuple[str, ...] = ()
    """Like --data-path, for training only."""
    valid_data_path: tuple[str, ...] = ()
    """Like --data-path, for validation only."""
    test_data_path: tuple[str, ...] = ()
    """Like --data-path, for testing only."""
    data_cache_path: str | None = None
    """Directory for index caches. Default: cache/ beside each .bin/.idx pair."""
    num_workers: int = 2
    """Threads that read samples ahead; 0: read when needed. Never changes the samples."""
    tokenizer_type: str | None = None
    """A file of megalite/data/tokenizers/. HuggingFaceTokenizer, SentencePieceTokenizer (also GPTSentencePieceTokenizer,
    Llama2Tokenizer), TikTokenizer: a file (--tokenizer-model). GPT2BPETokenizer: --vocab-file and --merge-file.
    BertWordPieceLowerCase, BertWordPieceCase: --vocab-file. NullTokenizer: the tokens are integers (--vocab-size). Default:
    HuggingFaceTokenizer or GPT2BPETokenizer where their files are given, else what is recorded beside the data."""
    tokenizer_model: str | None = None
    """A tokenizer.json or the directory that holds it; a SentencePiece .model; a tiktoken file (.tiktoken or .json)."""
    vocab_file: str | None = None
    """vocab.json of a GPT-2 tokenizer; vocab.txt of a BERT tokenizer."""
    merge_file: str | None = None
    """merges.txt of a GPT-2 tokenizer."""
    eod_token: str | None = None
    """Text of the end-of-document token. Default: what the tokenizer's own files call its end-of-sequence token. (Not a
    flag of Megatron-LM.)"""
    vocab_extra_ids: int = 0
    """Sentinel tokens (<extra_id_0> and so on) to add after a BERT or SentencePiece vocabulary."""
    tiktoken_pattern: str | None = None
    """How a TikTokenizer splits text: v1 or v2 (of a .json without a pattern; default: v2), or the encoding that a .tiktoken
    file holds (default: by the file's name)."""
    tiktoken_num_special_tokens: int = 1000
    """Ids that a TikTokenizer's .json sets aside in front of its vocabulary."""
    reset_position_ids: bool = False
    """Positions start at 0 after each end-of-document token."""
    reset_attention_mask: bool = False
    """Tokens attend only within their document."""
    eod_mask_loss: bool = False
    """End-of-document tokens take no part in the loss."""

    @property
    def tokenizer_kind(self) -> str | None:
        """The tokenizer's type: as given, else as its files imply; None to take it from beside the data."""
        if self.tokenizer_type is None and self.tokenizer_model is not None:
            return "HuggingFaceTokenizer"
        if self.tokenizer_type is None and (self.vocab_file is not None or self.merge_file is not None):
            return "GPT2BPETokenizer"
        return self.tokenizer_type

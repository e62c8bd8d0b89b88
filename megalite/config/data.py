"""Which text is read and how it becomes samples."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """data: corpora, splits and tokenizer"""

    data_path: tuple[str, ...] = ()
    """Prefixes of .bin/.idx files: PREFIX, several of them, or WEIGHT PREFIX WEIGHT PREFIX ... for a weighted blend."""
    split: str | None = None
    """Shares of documents for training, validation and test, as in 969,30,1; only with --data-path or --data-args-path.
    Default: 969,30,1."""
    train_data_path: tuple[str, ...] = ()
    """Like --data-path, for training only."""
    valid_data_path: tuple[str, ...] = ()
    """Like --data-path, for validation only."""
    test_data_path: tuple[str, ...] = ()
    """Like --data-path, for testing only."""
    data_args_path: str | None = None
    """Text file that holds what would follow --data-path."""
    per_split_data_args_path: str | None = None
    """JSON file: an object with the keys train, valid and test, each what would follow --train-data-path and so on, as
    a text or a list."""
    multiple_validation_sets: bool = False
    """Evaluate on each validation corpus by itself and report each by its name."""
    validation_set_names: tuple[str, ...] = ()
    """Names of the validation sets. Default: the last parts of the prefixes."""
    full_validation: bool = False
    """An evaluation reads every token of the validation corpora once, instead of --eval-iters batches."""
    data_cache_path: str | None = None
    """Directory for index caches; may be local to each node. Default: cache/ beside each .bin/.idx pair."""
    num_dataset_builder_threads: int = 4
    """Threads that open corpora and build index caches; each holds the indices that it builds in memory. Never changes
    the samples. (1 in Megatron-LM.)"""
    mid_level_dataset_surplus: float = 0.005
    """Share of samples by which each corpus of a blend is built longer than its part of the run. It decides the number
    of epochs that are shuffled together, hence the order."""
    num_workers: int = 2
    """Threads that read samples ahead; 0: read when needed. Never changes the samples."""
    tokenizer_type: str | None = None
    """A file of megalite/data/tokenizers/. HuggingFaceTokenizer, SentencePieceTokenizer (also
    GPTSentencePieceTokenizer, Llama2Tokenizer), TikTokenizer: a file (--tokenizer-model). GPT2BPETokenizer:
    --vocab-file and --merge-file. BertWordPieceLowerCase, BertWordPieceCase: --vocab-file. NullTokenizer: the tokens
    are integers (--vocab-size). Default: HuggingFaceTokenizer or GPT2BPETokenizer where their files are given, else
    what is recorded beside the data."""
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
    """How a TikTokenizer splits text: v1 or v2 (of a .json without a pattern; default: v2), or the encoding that a
    .tiktoken file holds (default: by the file's name)."""
    tiktoken_num_special_tokens: int = 1000
    """Ids that a TikTokenizer's .json sets aside in front of its vocabulary."""
    reset_position_ids: bool = False
    """Positions start at 0 after each end-of-document token."""
    reset_attention_mask: bool = False
    """Tokens attend only within their document."""
    eod_mask_loss: bool = False
    """End-of-document tokens take no part in the loss."""
    fim_data: bool = False
    """Rearrange documents for filling in the middle. Needs a tokenizer that has the three --fim-*-token."""
    fim_rate: float = 0.5
    """Probability that a piece of a document within a sample is rearranged."""
    fim_spm_rate: float = 0.5
    """Probability that it becomes suffix, prefix, middle, instead of prefix, suffix, middle."""
    fim_split_sample: str | None = None
    """Token that separates the fragments of a document (the files of a repository): if a document with such tokens is
    rearranged, then fragment by fragment."""
    fim_fragment_rate: float | None = None
    """Probability that a fragment is rearranged, in a document that is. Goes with --fim-split-sample."""
    fim_no_prefix: str | None = None
    """Leave alone what begins with this text."""
    fim_prefix_token: str = "<fim_prefix>"
    """Token before the prefix."""
    fim_middle_token: str = "<fim_middle>"
    """Token before the middle."""
    fim_suffix_token: str = "<fim_suffix>"
    """Token before the suffix."""

    @property
    def tokenizer_kind(self) -> str | None:
        """The tokenizer's type: as given, else as its files imply; None to take it from beside the data."""
        if self.tokenizer_type is None and self.tokenizer_model is not None:
            return "HuggingFaceTokenizer"
        if self.tokenizer_type is None and (self.vocab_file is not None or self.merge_file is not None):
            return "GPT2BPETokenizer"
        return self.tokenizer_type

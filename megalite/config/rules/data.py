"""Rules of corpora and tokenizers."""

from typing import Iterator

from megalite.config.root import Config


_PER_SPLIT = ("train_data_path", "valid_data_path", "test_data_path")


def one_way_to_name_corpora(config: Config, world_size: int) -> Iterator[str]:
    data = config.data
    own = [name for name in _PER_SPLIT if getattr(data, name)]
    files = [name for name in ("data_args_path", "per_split_data_args_path") if getattr(data, name)]
    ways = ["data_path"] * bool(data.data_path) + files + [" and ".join(own)] * bool(own)
    if len(ways) > 1:
        yield f"{ways[0]} cannot be used with {' and with '.join(ways[1:])}: keep one way to name corpora."
    if data.split is not None and (own or data.per_split_data_args_path):
        per_split = " and ".join(own or ["per_split_data_args_path"])
        yield (
            f"split ({data.split}) divides data_path or data_args_path and cannot be used with {per_split}: drop it."
        )


def there_is_a_corpus(config: Config, world_size: int) -> Iterator[str]:
    data = config.data
    in_one = data.data_path or data.data_args_path or data.per_split_data_args_path
    if not (in_one or data.train_data_path) and not config.training.skip_train:
        yield "training needs a corpus, as tools/preprocess_data.py writes it: add --data-path or --train-data-path."
    if config.training.skip_train and not (in_one or data.valid_data_path or data.test_data_path):
        yield "evaluation needs a corpus: add --data-path PREFIX, --valid-data-path or --test-data-path."


def evaluation_has_its_corpus(config: Config, world_size: int) -> Iterator[str]:
    data, training = config.data, config.training
    if data.train_data_path and not data.valid_data_path and training.eval_interval is not None and training.eval_iters:
        yield (
            f"eval_interval ({training.eval_interval}) needs valid_data_path beside train_data_path: add "
            "--valid-data-path, or set --eval-iters 0."
        )


def fragments_have_a_border_and_a_rate(config: Config, world_size: int) -> Iterator[str]:
    data = config.data
    if data.fim_data and (data.fim_split_sample is None) != (data.fim_fragment_rate is None):
        yield (
            f"fim_split_sample ({data.fim_split_sample}) and fim_fragment_rate ({data.fim_fragment_rate}) go together: "
            "give both or none."
        )


def tokenizer_has_its_files(config: Config, world_size: int) -> Iterator[str]:
    data = config.data
    if data.tokenizer_kind == "HuggingFaceTokenizer" and data.tokenizer_model is None:
        yield "tokenizer_type HuggingFaceTokenizer needs a tokenizer.json: add --tokenizer-model."
    if data.tokenizer_kind == "GPT2BPETokenizer":
        missing = [name for name in ("vocab_file", "merge_file") if getattr(data, name) is None]
        if missing:
            yield f"a GPT-2 tokenizer needs vocab_file and merge_file; {' and '.join(missing)} not given: add them."
    if data.tokenizer_kind == "NullTokenizer" and config.model.vocab_size is None:
        yield "tokenizer_type NullTokenizer needs vocab_size: add --vocab-size."


def one_tokenizer(config: Config, world_size: int) -> Iterator[str]:
    data = config.data
    files = [name for name in ("vocab_file", "merge_file") if getattr(data, name) is not None]
    if data.tokenizer_type is None and data.tokenizer_model is not None and files:
        yield (
            f"one tokenizer must be meant; given tokenizer_model ({data.tokenizer_model}) and {' and '.join(files)}: "
            "drop one, or say which by --tokenizer-type."
        )

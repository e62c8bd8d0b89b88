import numpy as np
import pytest
import tokenizers
from tokenizers import models

from megalite.data.preprocess.encode import BlockEncoder, EncodeSettings, encode_block
from megalite.data.preprocess.inputs import Block
from megalite.data.tokenizers import TokenizerOptions
from megalite.errors import DataError

IDS = TokenizerOptions(tokenizer_type="NullTokenizer", vocab_size=100)


def encoder(tokenizer=IDS, keys=("text",), append_eod=False, skip_invalid=False):
    return BlockEncoder(EncodeSettings(tokenizer, keys, append_eod, skip_invalid))


def block(*lines: str, first_line=1) -> Block:
    return Block("x.jsonl", first_line, "\n".join(lines).encode(), 77)


def arrays(column):
    return [array.tolist() for array in (column.tokens, column.sequence_lengths, column.document_sequences)]


def test_documents_become_arrays():
    encoded = encoder()(block('{"text": "5 6 7"}', "", '{"text": "8"}'))
    assert arrays(encoded.columns[0]) == [[5, 6, 7, 8], [3, 1], [1, 1]]
    assert encoded.columns[0].tokens.dtype == np.int32
    assert (encoded.position, encoded.skipped) == (77, {})


def test_the_end_of_document_goes_to_the_last_sequence():
    encoded = encoder(append_eod=True)(block('{"text": ["1", "2 3"]}', '{"text": "4"}'))
    assert arrays(encoded.columns[0]) == [[1, 2, 3, 100, 4, 100], [1, 3, 2], [2, 1]]


@pytest.mark.parametrize("append_eod", [False, True])
def test_an_empty_text_is_a_document_without_a_sequence(append_eod):
    lines = ['{"text": ""}', '{"text": "7"}', '{"text": []}', '{"text": ["", " "]}', '{"text": ["", "8", ""]}', '{"text": ""}']
    seven, eight = ([7, 100], [8, 100]) if append_eod else ([7], [8])
    encoded = encoder(append_eod=append_eod)(block(*lines))
    assert arrays(encoded.columns[0]) == [seven + eight, [len(seven), len(eight)], [0, 1, 0, 0, 1, 0]]
    nothing = encoder(append_eod=append_eod)(block('{"text": ""}'))
    assert arrays(nothing.columns[0]) == [[], [], [0]]


def test_each_key_is_a_column():
    encoded = encoder(keys=("a", "b"))(block('{"a": "1", "b": "2 3"}', '{"b": "4", "a": ""}'))
    assert [arrays(column) for column in encoded.columns] == [[[1], [1], [1, 0]], [[2, 3, 4], [2, 1], [1, 1]]]


def test_text_is_counted_in_bytes_of_utf8(tmp_path):
    model = models.WordLevel({"<unk>": 0}, unk_token="<unk>")
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    options = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(tmp_path))
    encoded = encoder(options)(block('{"text": "é\\u20ac"}', '{"text": ["ab", "\\ud83d\\ude00"]}'))
    assert encoded.columns[0].text_bytes == 2 + 3 + 2 + 4


def test_the_first_fault_is_an_error_with_file_and_line():
    lines = block('{"text": "1"}', "", '{"txt": "1"}', "{", first_line=40)
    with pytest.raises(DataError, match=r"^x.jsonl:42: missing key: there is no 'text', only 'txt'. Each line must .*--skip-invalid"):
        encoder()(lines)


def test_a_text_without_an_encoding_is_found_among_the_others():
    lines = block('{"text": "1"}', '{"text": "x"}', '{"text": "101"}', "{")
    with pytest.raises(DataError, match="^x.jsonl:2: cannot be encoded: NullTokenizer reads integers"):
        encoder()(lines)


def test_the_earlier_of_two_kinds_of_fault_is_reported():
    with pytest.raises(DataError, match="^x.jsonl:2: malformed JSON"):
        encoder()(block('{"text": "1"}', "{", '{"text": "x"}'))


def test_faults_are_left_out_and_counted_on_request():
    lines = block('{"text": "1"}', '{"txt": "1"}', '{"text": "x"}', "{", '{"text": "2"}', "[", '{"text": "200"}', first_line=5)
    encoded = encoder(skip_invalid=True)(lines)
    assert arrays(encoded.columns[0]) == [[1, 2], [1, 1], [1, 1]]
    counts = {reason: (skipped.count, skipped.first.split(": ")[0]) for reason, skipped in encoded.skipped.items()}
    assert counts == {"missing key": (1, "x.jsonl:6"), "cannot be encoded": (2, "x.jsonl:7"), "malformed JSON": (2, "x.jsonl:8")}


def test_a_fault_in_one_key_leaves_the_line_out_of_all():
    encoded = encoder(keys=("a", "b"), skip_invalid=True)(block('{"a": "1", "b": "x"}', '{"a": "2", "b": "3"}', '{"a": "4"}'))
    assert [column.tokens.tolist() for column in encoded.columns] == [[2], [3]]


def test_a_process_builds_its_tokenizer_once(tmp_path):
    model = models.WordLevel({"a": 0})
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    options = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(tmp_path))
    settings = EncodeSettings(options, ("text",), False, False)
    first = encode_block(settings, block('{"text": "a"}'))
    (tmp_path / "tokenizer.json").unlink()
    assert arrays(encode_block(settings, block('{"text": "a"}')).columns[0]) == arrays(first.columns[0]) == [[0], [1], [1]]

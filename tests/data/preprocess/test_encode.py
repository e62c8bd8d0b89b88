import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from megalite.data.preprocess.chunks import LineBlock, LineRange
from megalite.data.preprocess.encode import ChunkEncoder, EncodeSettings, encode_chunk, first_texts
from megalite.data.preprocess.inputs import Block
from megalite.data.tokenizers import TokenizerOptions

IDS = TokenizerOptions(tokenizer_type="NullTokenizer", vocab_size=100)


def encoder(tokenizer=IDS, keys=("text",), append_eod=False, skip_invalid=False):
    return ChunkEncoder(EncodeSettings(tokenizer, keys, append_eod, skip_invalid))


def block(*lines: str, first_line=1) -> LineBlock:
    return LineBlock(Block("x.jsonl", first_line, "\n".join(lines).encode(), 77), "jsonl")


def arrays(column):
    return [array.tolist() for array in (column.tokens, column.sequence_lengths, column.document_sequences)]


def faults_of(encoded):
    return {reason: (fault.count, fault.path, fault.line, fault.detail) for reason, fault in encoded.skipped.items()}


def test_documents_become_arrays():
    encoded = encoder()(block('{"text": "5 6 7"}', "", '{"text": "8"}'))
    assert arrays(encoded.columns[0]) == [[5, 6, 7, 8], [3, 1], [1, 1]]
    assert encoded.columns[0].tokens.dtype == np.uint16, "the dtype of a corpus with so small a vocabulary"
    assert (encoded.position, encoded.num_lines, encoded.skipped) == (77, 2, {})


def test_the_end_of_document_goes_to_the_last_sequence():
    encoded = encoder(append_eod=True)(block('{"text": ["1", "2 3"]}', '{"text": "4"}'))
    assert arrays(encoded.columns[0]) == [[1, 2, 3, 100, 4, 100], [1, 3, 2], [2, 1]]


@pytest.mark.parametrize("append_eod", [False, True])
def test_an_empty_text_is_a_document_without_a_sequence(append_eod):
    lines = [
        '{"text": ""}',
        '{"text": "7"}',
        '{"text": []}',
        '{"text": ["", " "]}',
        '{"text": ["", "8", ""]}',
        '{"text": ""}',
    ]
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
    assert encoded.columns[0].text_bytes.tolist() == [2 + 3, 2 + 4]


def test_the_first_fault_ends_the_chunk_and_has_file_and_line():
    lines = block('{"text": "1"}', "", '{"txt": "1"}', "{", first_line=40)
    assert faults_of(encoder()(lines)) == {"missing key": (1, "x.jsonl", 42, "there is no 'text', only 'txt'")}


def test_a_text_without_an_encoding_is_found_among_the_others():
    lines = block('{"text": "1"}', '{"text": "x"}', '{"text": "101"}', "{")
    count, path, line, detail = faults_of(encoder()(lines))["cannot be encoded"]
    assert (count, path, line) == (2, "x.jsonl", 2)
    assert detail.startswith("NullTokenizer reads integers")


def test_the_earlier_of_two_kinds_of_fault_is_reported():
    assert list(encoder()(block('{"text": "1"}', "{", '{"text": "x"}')).skipped) == ["malformed JSON"]
    faults = encoder()(block('{"text": "1"}', '{"text": "x"}', "{")).skipped
    assert list(faults) == ["cannot be encoded", "malformed JSON"]


def test_faults_are_left_out_and_counted_on_request():
    lines = block(
        '{"text": "1"}', '{"txt": "1"}', '{"text": "x"}', "{", '{"text": "2"}', "[", '{"text": "200"}', first_line=5
    )
    encoded = encoder(skip_invalid=True)(lines)
    assert arrays(encoded.columns[0]) == [[1, 2], [1, 1], [1, 1]]
    counts = {reason: (count, line) for reason, (count, _, line, _) in faults_of(encoded).items()}
    assert counts == {"missing key": (1, 6), "cannot be encoded": (2, 7), "malformed JSON": (2, 8)}


def test_a_fault_in_one_key_leaves_the_line_out_of_all():
    encoded = encoder(keys=("a", "b"), skip_invalid=True)(
        block('{"a": "1", "b": "x"}', '{"a": "2", "b": "3"}', '{"a": "4"}')
    )
    assert [column.tokens.tolist() for column in encoded.columns] == [[2], [3]]


def test_a_process_builds_its_tokenizer_once(tmp_path):
    model = models.WordLevel({"a": 0})
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    options = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(tmp_path))
    settings = EncodeSettings(options)
    first = encode_chunk(settings, block('{"text": "a"}'))
    (tmp_path / "tokenizer.json").unlink()
    assert (
        arrays(encode_chunk(settings, block('{"text": "a"}')).columns[0]) == arrays(first.columns[0]) == [[0], [1], [1]]
    )


def test_sentences_are_sequences(tmp_path):
    """A vocabulary of one byte a token, so that lengths are those of the sentences."""
    vocab = {symbol: number for number, symbol in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    backend = tokenizers.Tokenizer(models.BPE(vocab, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.save(str(tmp_path / "tokenizer.json"))
    options = TokenizerOptions(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=str(tmp_path))
    lines = block(
        '{"text": "One two. Three\\nfour.\\n\\nFive."}', '{"text": ["Six. Seven.", "Eight"]}', '{"text": " "}'
    )

    def lengths(sentences):
        column = ChunkEncoder(EncodeSettings(options, sentences=sentences))(lines).columns[0]
        return column.sequence_lengths.tolist(), column.document_sequences.tolist()

    assert lengths("whole") == ([27, 11, 5, 1], [1, 2, 1])
    assert lengths("split") == ([8, 11, 5, 4, 6, 5], [3, 3, 0])
    assert lengths("split with line breaks") == ([8, 13, 5, 4, 6, 5], [3, 3, 0])


def test_digests_tell_texts_and_their_borders_apart():
    lines = ['"12"', '"12"', '["1", "2"]', '["12", ""]', '["", "12"]', '["12"]']
    chunk = block(*(f'{{"text": {line}}}' for line in lines))
    digests = ChunkEncoder(EncodeSettings(IDS, digests=True))(chunk).digests
    assert digests.dtype == np.uint64
    first = {line: digests[lines.index(line)] for line in lines}
    assert digests[1] == first['"12"'] == digests[5]
    assert len({int(digest) for digest in digests}) == 4


def test_documents_of_a_column_are_chosen():
    column = encoder()(block('{"text": ["1", "2 3"]}', '{"text": ""}', '{"text": "4"}', '{"text": "5 6"}')).columns[0]
    chosen = column.chosen(np.array([True, True, False, True]))
    assert arrays(chosen) == [[1, 2, 3, 5, 6], [1, 2, 2], [2, 0, 1]]
    assert chosen.text_bytes.tolist() == [4, 0, 3]


def test_a_chunk_of_many_texts_is_encoded_in_parts(monkeypatch):
    lines = [f'{{"text": "{number}"}}' for number in range(50)] + ['{"text": "x"}'] + ['{"text": "7"}'] * 3
    whole = encoder(skip_invalid=True)(block(*lines))
    monkeypatch.setattr("megalite.data.preprocess.encode._GROUP_CHARACTERS", 7)
    parts = encoder(skip_invalid=True)(block(*lines))
    assert arrays(parts.columns[0]) == arrays(whole.columns[0]) == [[*range(50), 7, 7, 7], [1] * 53, [1] * 53]
    assert faults_of(parts) == faults_of(whole)


def test_first_texts(tmp_path):
    lines = block('{"text": "12"}', "{", '{"text": ["345", "67"]}', '{"text": "8"}')
    assert first_texts([lines], ("text",)) == ["12", "345", "67", "8"]
    assert first_texts([lines, lines], ("text",), num_characters=4) == ["12", "34"]
    assert first_texts([], ("text",)) == []


def test_lines_of_a_later_range_of_a_file_are_numbered_from_its_first(tmp_path):
    (tmp_path / "x").write_text('{"text": "1"}\n{"text": "2"}\n{\n{"text": "3"}\n')
    path = str(tmp_path / "x")
    encoded = encoder(skip_invalid=True)(LineRange(path, "jsonl", 5, 100, 0))
    assert (encoded.continues, encoded.num_lines, encoded.skipped["malformed JSON"].line) == (True, 3, 2)
    assert not encoder(skip_invalid=True)(LineRange(path, "jsonl", 0, 5, 0)).continues

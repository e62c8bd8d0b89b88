import gzip
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalite.data.preprocess.inputs import find_inputs, read_blocks
from megalite.data.preprocess.streams import STDIN
from megalite.errors import DataError


def read(path, block_bytes=1 << 18):
    return list(read_blocks([path], block_bytes))


def lines_of(blocks):
    return [line for block in blocks for line in block.lines()]


def test_a_directory_stands_for_its_files_sorted_by_path(tmp_path):
    for name in ("b.jsonl", "a/z.json", "a/c.jsonl.gz", "notes.txt", ".hidden.jsonl", "README"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert find_inputs([str(tmp_path)]) == [tmp_path / name for name in ("a/c.jsonl.gz", "a/z.json", "b.jsonl")]


def test_files_keep_their_order_whatever_their_names(tmp_path):
    paths = [tmp_path / name for name in ("z", "a.dat")]
    for path in paths:
        path.write_text("{}")
    assert find_inputs([str(path) for path in (*paths, paths[0])]) == [*paths, paths[0]]


def test_the_description_of_a_corpus_in_the_directory_is_no_input(tmp_path):
    for name in ("x.jsonl", "x_text_document.json", "x_text_document.idx", "other.json"):
        (tmp_path / name).touch()
    assert find_inputs([str(tmp_path)]) == [tmp_path / "other.json", tmp_path / "x.jsonl"]


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(DataError, match="--input must name existing files or directories; given '.*nowhere'"):
        find_inputs([str(tmp_path / "nowhere")])


def test_a_pattern_stands_for_the_files_that_it_matches(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "sub/c.jsonl", "d.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_inputs([str(tmp_path / "*.jsonl")]) == [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    assert find_inputs([str(tmp_path / "**" / "c*")]) == [tmp_path / "sub" / "c.jsonl"]
    with pytest.raises(DataError, match=r"--input patterns must match files; '.*\*.gz' matches none"):
        find_inputs([str(tmp_path / "*.gz")])
    (tmp_path / "[x]*").touch()
    assert find_inputs([str(tmp_path / "[x]*")]) == [tmp_path / "[x]*"], "a file of that very name"


def test_standard_input_is_read_once():
    assert find_inputs(["-"]) == [STDIN]
    with pytest.raises(DataError, match="--input can read standard input once; '-' is given 2 times"):
        find_inputs(["-", "-"])


def test_a_directory_without_a_fitting_file(tmp_path):
    (tmp_path / "a.csv").touch()
    with pytest.raises(DataError, match=r"must hold files named \*.jsonl, .*; none of its 1 files is"):
        find_inputs([str(tmp_path)])


def test_lines_are_numbered_and_blank_ones_left_out(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"one\n\n  \t\r\nfour\r\nfive")
    for block_bytes in (1, 3, 7, 1000):
        assert lines_of(read(path, block_bytes)) == [(1, b"one"), (4, b"four\r"), (5, b"five")]


def test_only_newline_ends_a_line(tmp_path):
    path = tmp_path / "x.jsonl"
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x00h\ri"
    path.write_text(text + "\n" + text, encoding="utf-8", newline="")
    assert lines_of(read(path)) == [(1, text.encode()), (2, text.encode())]


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert lines_of(read(path)) == [(1, b"one"), (2, b"\xef\xbb\xbftwo")]


def test_an_empty_file_has_no_block(tmp_path):
    (tmp_path / "x.jsonl").touch()
    assert read(tmp_path / "x.jsonl") == []


@given(
    lines=st.lists(st.text(alphabet="ab\r€😀", max_size=12)),
    ended=st.booleans(),
    compressed=st.booleans(),
    block_bytes=st.integers(4, 40),
)
def test_blocks_are_whole_lines_and_join_to_the_file(tmp_path_factory, lines, ended, compressed, block_bytes):
    content = "\n".join(lines).encode() + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("blocks") / "x"
    path.write_bytes(gzip.compress(content) if compressed else content)
    blocks = read(path, block_bytes)
    assert b"".join(block.data for block in blocks) == content
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    line = 1
    for block in blocks:
        block.data.decode("utf-8")
        assert block.first_line == line
        line += block.data.count(b"\n")
    longest = max((len(line.encode()) for line in lines), default=0)
    assert all(len(block.data) <= block_bytes + longest + 1 for block in blocks)


def test_compression_is_seen_in_the_content_not_in_the_name(tmp_path):
    plain, packed = tmp_path / "plain.jsonl.gz", tmp_path / "packed.jsonl"
    plain.write_bytes(b"one\n")
    packed.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))  # two members, as some compressors write
    assert lines_of(read(plain)) == [(1, b"one")]
    assert lines_of(read(packed)) == [(1, b"one"), (2, b"two")]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: data[:300], lambda data: data[:50] + b"\xff" * 9 + data[59:]]
)
def test_damaged_compressed_data(tmp_path, damage):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(damage(gzip.compress(os.urandom(1000).hex().encode())))
    with pytest.raises(DataError, match=r"x.jsonl.gz must be whole gzip data; after \d+ bytes of text"):
        read(path)


def test_positions_count_stored_bytes_over_all_files(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"one\ntwo\n")
    second.write_bytes(gzip.compress(b"three\n"))
    assert [block.position for block in read_blocks([first, second], 4)] == [4, 8, 8 + second.stat().st_size]


def test_a_pipe_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    assert lines_of(read(path)) == [(1, b"one"), (2, b"two")]
    writer.join()

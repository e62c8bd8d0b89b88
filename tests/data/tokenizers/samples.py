"""Small tokenizers and texts in many scripts, for the tests of tokenizers and of preprocessing."""

import base64
import io
import json
from pathlib import Path
from typing import Sequence

import sentencepiece
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

MULTILINGUAL = [
    "The quick brown fox isn't 1,234 years old; it's 5!",
    "مرحبا بالعالم، كيف حالُك؟",  # Arabic with a vowel mark
    "吾輩は猫である。名前はまだ無い。",
    "天地玄黃，宇宙洪荒",
    "안녕하세요, 세계! 한글",
    "नमस्ते दुनिया, क्या हाल है?",  # Devanagari with combining vowels
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467 wave \U0001f44b\U0001f3fd flag \U0001f1eb\U0001f1f7",
    "إِنَّ الْعِلْمَ نُورٌ يُضِيءُ طَرِيقَ مَنْ يَسِيرُ فِيهِ",  # Arabic with all its marks
    "می‌خواهم کتاب‌های تازه بخوانم",  # Persian with zero-width non-joiners
    "春は曙。ようよう白くなりゆく山ぎわ、コンピューターで文章を書く。",
    "我们在图书馆里学习语言模型，并且写下许多句子。",
    "오늘은 날씨가 맑아서 친구들과 공원에서 책을 읽었습니다.",
    "किताबें पढ़ना और क्षितिज पर सूर्योदय देखना मुझे अच्छा लगता है।",
    "Ελληνικά, кириллица и ещё שָׁלוֹם עוֹלָם; ภาษาไทยไม่มีช่องว่าง",
    "\U0001f9d1\u200d\U0001f4bb \u2764\ufe0f\u200d\U0001f525 \U0001f3f4\u200d\u2620\ufe0f 1\ufe0f\u20e3 "
    "\U0001f469\U0001f3ff\u200d\U0001f680",
    "e\u0301 is not \u00e9 to a tokenizer that does not normalise",
    "tabs\tand\n\n\nnew lines \u2028 and  spaces   \r\n",
    "nul \x00 and control \x07\x1b characters",
    "",
]


def byte_level_bpe(
    directory: Path, vocab_size: int = 400, special_tokens: tuple[str, ...] = ("<|endoftext|>",)
) -> Path:
    """A byte-level BPE trained on :data:`MULTILINGUAL`, as ``directory/tokenizer.json``; special tokens come first."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special_tokens],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(MULTILINGUAL * 3, trainer)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory / "tokenizer.json"


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes: itself if printable, else the next character past 255."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def ranked_tokens(directory: Path) -> list[bytes]:
    """Byte sequences by rank, as tiktoken files list them: the 256 bytes, then merges learnt from MULTILINGUAL."""
    model = json.loads(byte_level_bpe(directory, 600).read_text())["model"]
    byte_of = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    merged = ["".join(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    return [bytes([byte]) for byte in range(256)] + [bytes(byte_of[symbol] for symbol in token) for token in merged]


def ranks(tokens: Sequence[bytes]) -> bytes:
    """``tokens`` as the content of a ``.tiktoken`` file."""
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


def sentencepiece_model(path: Path, **options: object) -> Path:
    """A SentencePiece model trained on :data:`MULTILINGUAL`; ``options`` are the trainer's."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in MULTILINGUAL if text] * 3),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **{"vocab_size": 320, **options},
    )
    path.write_bytes(model.getvalue())
    return path


def word_level(path: Path, words: list[str], **parts: object) -> Path:
    """A tokenizer whose tokens are whole words, numbered in their order; ``parts`` are set on the tokenizer."""
    model = models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path


def write_json(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path

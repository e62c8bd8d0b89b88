"""Megatron-LM's language for uneven pipelines: ``Et*3|(tt|)*29t|L`` says what every virtual stage holds.

``E`` is the embedding, ``t`` a layer, ``L`` the head with its loss; ``|`` ends a stage; ``x*n`` and ``(...)*n`` repeat,
groups may be nested; commas and blanks are ignored. A stage may be empty.
"""

from dataclasses import dataclass

from megalite.errors import ConfigError

_UNITS = "EtL"
_LONGEST = 100_000
"""Symbols after expansion; no model has more, a slip of the finger in a repeat count easily."""


@dataclass(frozen=True)
class _Symbol:
    text: str
    position: int


def parse_layout(layout: str, num_layers: int, pp: int) -> list[str]:
    """The units of each virtual stage, such as ``["Ett", "tt", "L"]``.

    Raises :class:`ConfigError`, with the place shown, unless the layout has one E first, one L last, ``num_layers``
    t, and a number of stages that is a multiple of ``pp``.
    """
    symbols = _Parser(layout).parse()
    _check_units(layout, symbols, num_layers)
    stages = "".join(symbol.text for symbol in symbols).split("|")
    if len(stages) % pp:
        rule = f"the number of stages must be a multiple of the pipeline size ({pp})"
        raise _error(layout, len(layout), f"{rule}; this layout has {len(stages)}")
    return stages


def _check_units(layout: str, symbols: list[_Symbol], num_layers: int) -> None:
    for name, what in (("E", "the embedding"), ("L", "the head")):
        found = [symbol for symbol in symbols if symbol.text == name]
        if len(found) != 1:
            place = found[1].position if found else len(layout)
            raise _error(layout, place, f"{name}, {what}, must appear once; it appears {len(found)} times")
    if symbols[0].text != "E":
        raise _error(layout, symbols[0].position, "the first stage must begin with E, the embedding")
    if symbols[-1].text != "L":
        raise _error(layout, symbols[-1].position, "the last stage must end with L, the head")
    layers = [symbol for symbol in symbols if symbol.text == "t"]
    if len(layers) != num_layers:
        place = layers[num_layers].position if len(layers) > num_layers else symbols[-1].position
        raise _error(layout, place, f"the layout must hold all {num_layers} layers (t); it holds {len(layers)}")


class _Parser:
    """Recursive descent over ``sequence := (item ["*" count])*``, ``item := E | t | L | "|" | "(" sequence ")"``."""

    def __init__(self, layout: str):
        self.layout, self.at = layout, 0

    def parse(self) -> list[_Symbol]:
        symbols = self._sequence()
        if self.at < len(self.layout):
            raise _error(self.layout, self.at, "')' must close a '('; there is none open")
        return symbols

    def _peek(self) -> str:
        while self.at < len(self.layout) and self.layout[self.at] in ", \t\n":
            self.at += 1
        return self.layout[self.at : self.at + 1]

    def _sequence(self) -> list[_Symbol]:
        symbols: list[_Symbol] = []
        while self._peek() not in ("", ")"):
            start = self.at
            item, count = self._item(), self._count()
            if len(symbols) + len(item) * count > _LONGEST:
                raise _error(self.layout, start, f"a layout must not grow beyond {_LONGEST} symbols; this repeat does")
            symbols += item * count
        return symbols

    def _item(self) -> list[_Symbol]:
        start, symbol = self.at, self._peek()
        self.at += 1
        if symbol == "(":
            symbols = self._sequence()
            if self._peek() != ")":
                raise _error(self.layout, start, "'(' must be closed by ')'")
            self.at += 1
            return symbols
        if symbol == "m":
            raise _error(self.layout, start, "m, a multi-token-prediction layer, is not supported: leave it out")
        if symbol == "*":
            raise _error(self.layout, start, "'*' must follow a letter, '|' or ')'")
        if symbol not in _UNITS + "|":
            raise _error(self.layout, start, f"a layout is made of E, t, L, |, (, ), * and numbers; given {symbol!r}")
        return [_Symbol(symbol, start)]

    def _count(self) -> int:
        """The number after a "*" that follows, or 1."""
        if self._peek() != "*":
            return 1
        self.at += 1
        digits = ""
        while self._peek().isdecimal():
            digits += self._peek()
            self.at += 1
        if not digits or int(digits) == 0:
            raise _error(self.layout, self.at - len(digits), "'*' must be followed by a number of at least 1")
        return int(digits)


def _error(layout: str, position: int, sentence: str) -> ConfigError:
    shown = layout.replace("\n", " ").replace("\t", " ")
    where = f"--pipeline-model-parallel-layout, character {position + 1}"
    return ConfigError(f"{where}: {sentence}.\n  {shown}\n  {' ' * position}^")

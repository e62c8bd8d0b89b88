"""The text of ``--help``: every flag by group, with its choices, default and help."""

import shutil
import textwrap

from megalite.config.fields import Field, all_fields, group_titles, help_texts

_USAGE = """\
Give settings as flags, or in a file for --config, or both: the command line wins. Hyphens and underscores are the
same, and a switch that is on is turned off by --no-NAME. Other flags of Megatron-LM are translated, accepted with a
notice where they make no difference, or refused with the reason.
"""

_INDENT = {"initial_indent": " " * 6, "subsequent_indent": " " * 6}


def help_text() -> str:
    """All flags by group, wrapped to the width of the terminal."""
    width = min(shutil.get_terminal_size().columns, 120)
    lines = textwrap.wrap(_USAGE, width, break_on_hyphens=False)
    lines += ["", "  --config FILE", "      Read settings from a .yaml or .json file."]
    helps = help_texts()
    for group, title in group_titles().items():
        lines += ["", title]
        for field in all_fields().values():
            if field.group == group:
                lines.append("  " + flag_text(field))
                lines += textwrap.wrap(helps[field.name], width, break_on_hyphens=False, **_INDENT)
    return "\n".join(lines)


def flag_text(field: Field) -> str:
    """A flag with its placeholder and default, e.g. ``--seed INT (1234)``."""
    text = f"{field.flag} {field.placeholder}".rstrip()
    return f"{text} ({default_text(field)})" if default_text(field) else text


def default_text(field: Field) -> str:
    """The default as shown to the user; empty when there is none to show."""
    if field.required:
        return "required"
    if field.default is None or field.default is False or field.default == ():
        return ""
    if field.default is True:
        return f"on; --no-{field.flag[2:]} turns it off"
    return f"{field.default:.10g}" if isinstance(field.default, float) else str(field.default)

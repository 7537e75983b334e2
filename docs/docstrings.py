"""Docstrings as Markdown, for the site (an extension of Griffe): what reads well in an editor reads well on a page.

:class:`deeppc.Graph` becomes `deeppc.Graph`; lines that begin with a name and two spaces become a list; ``>>>`` becomes
a block of code. Options of a dataclass show their defaults, and a list has their help.
"""

import ast
import re
from typing import Any

from griffe import Attribute, Class, ExprCall, Extension, Object

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
ITEM = re.compile(r"^(``[^`]+``(?:, ``[^`]+``)*)  +")


class Docstrings(Extension):
    """Rewrite the docstring of every object that is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by Griffe for modules, classes, functions and attributes."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        """Called by Griffe when the attributes of a class are known."""
        helps = {name: helped for name, member in cls.attributes.items() if (helped := help_of_option(member))}
        if helps and cls.docstring is not None:
            cls.docstring.value += "\n\n" + "\n".join(f"- ``{name}``: {words}" for name, words in helps.items())


def help_of_option(member: Attribute) -> str:
    """Return the help of ``name: type = option(default, help, ...)``, and leave ``name: type = default``; else ""."""
    call = member.value
    if not isinstance(call, ExprCall) or str(call.function) != "option":
        return ""
    default, words = call.arguments[:2]
    member.value = default
    return ast.literal_eval(str(words)).rstrip(": ").replace("<", "&lt;") if str(words).startswith(("'", '"')) else ""


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    lines: list[str] = []
    for line in ROLE.sub(r"``\1``", text).splitlines():
        before = lines[-1] if lines else ""
        in_list, in_code = before.startswith(("- ", "    ")), before.startswith(("    >>>", "    ..."))
        if line.startswith((">>>", "...")):
            lines += ([] if in_code or not before else [""]) + [f"    {line}"]
        elif ITEM.match(line):
            lines += ([] if in_list or not before else [""]) + [ITEM.sub(r"- \1: ", line)]
        elif in_list and not in_code and line.startswith(" "):
            lines.append(f"    {line.strip()}")
        else:
            lines.append(line)
    return "\n".join(lines)

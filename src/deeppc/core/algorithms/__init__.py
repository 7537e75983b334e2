"""The algorithms by name: ``bp``, ``pc``, ``ipc`` with ``+s +d +l`` (precision), ``+f`` (learning), ``+cn`` (nudging).

One file per family, imported here whatever its name; :mod:`deeppc.core.algorithms.base` says what a family is.
"""

from importlib import import_module
from pkgutil import iter_modules

from deeppc.core.algorithms.base import Algorithm, Result, describe, families, known_options, options_for, register
from deeppc.core.algorithms.options import Option, option

__all__ = ["Algorithm", "Option", "Result", "describe", "families"]
__all__ += ["known_options", "option", "options_for", "register"]

for _name in sorted((module.name for module in iter_modules(__path__)), key=len):  # bp, pc, ipc: the simplest first
    import_module(f"{__name__}.{_name}")

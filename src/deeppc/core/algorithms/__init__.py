"""The algorithms by name: ``bp``, ``pc``, ``ipc`` with ``+s +d +l`` (precision), ``+f`` (learning), ``+pn +nn +cn``
(nudging); and their rivals on the same graph, ``epc``, ``hpc``, ``zil``, ``fa``, ``dfa``, ``tp`` (docs/rivals.md).

One file per family, imported here whatever its name; :mod:`deeppc.core.algorithms.base` says what a family is.
"""

from importlib import import_module
from pkgutil import iter_modules

from deeppc.core.algorithms.base import Algorithm, Result, describe, families, known_options, options_for, register
from deeppc.core.algorithms.options import Option, option

__all__ = ["Algorithm", "Option", "Result", "describe", "families"]
__all__ += ["known_options", "option", "options_for", "register"]

for _name in ("bp", "pc", "ipc", *(module.name for module in iter_modules(__path__))):  # the paper's own first
    import_module(f"{__name__}.{_name}")

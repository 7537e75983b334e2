"""All kinds of cases, in the order of the table, and how many of each are tried."""

import words  # noqa: F401, I001 - they make themselves known, in this order
import calls  # noqa: F401
import damage  # noqa: F401
import sets  # noqa: F401
import faults

from machine import KINDS, try_case

__all__ = ["FAULTS", "HAPHAZARD", "KINDS", "MANY", "SAMPLE", "try_case"]

FAULTS = [name for name, (_, function) in KINDS.items() if function.__module__ == faults.__name__]
# What these meet depends on the moment and on the machine: for `make fuzz`, not for tests that must not flake.
HAPHAZARD = {"kills", "signals", "read_only", "pipes", "address_space"}
# Cases of a long run, and of the tests: fewer where one takes longer.
MANY = dict.fromkeys(KINDS, 100) | {"command_lines": 800, "toml_files": 400, "calls": 2000, "run_folders": 300}
MANY |= {"reports": 50, "archives": 500, "images": 500, "arrays": 500}
SAMPLE = {"command_lines": 30, "toml_files": 20, "calls": 40, "run_folders": 10, "reports": 2, "comparisons": 4}
SAMPLE |= {"searches": 3, "papers": 5, "archives": 20, "images": 20, "arrays": 40}

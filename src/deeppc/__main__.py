"""``python -m deeppc``: the command line."""

import sys

from deeppc.cli import main

sys.exit(main())

"""``python -m deeppc``: the command line."""

import sys

from deeppc.cli.main import main

sys.argv[0] = "deeppc"  # so that runs record a command that can be typed again
sys.exit(main())

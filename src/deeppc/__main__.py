"""Where ``deeppc`` and ``python -m deeppc`` begin: Ctrl-C is looked after before anything large is imported."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

ENDED = 128 + signal.SIGINT


def on_ctrl_c(number: int, frame: FrameType | None) -> None:
    """End the process at once where a module is being imported, else raise KeyboardInterrupt.

    A half-imported torch or numpy turns the exception into odd errors of its own. Whatever is on the disk is whole.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            with suppress(OSError):
                os.write(2, b"\x1b[?25hInterrupted.\n" if os.isatty(2) else b"Interrupted.\n")  # shows the cursor again
            os._exit(ENDED)
        frame = frame.f_back
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as under nohup
            signal.signal(signal.SIGINT, on_ctrl_c)
        from deeppc.cli.main import main

        code = main()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is the interpreter's end
        return code
    except KeyboardInterrupt:
        return ENDED


if __name__ == "__main__":
    sys.argv[0] = "deeppc"  # so that runs record a command that can be typed again
    sys.exit(main())

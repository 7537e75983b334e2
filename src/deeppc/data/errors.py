"""What can be wrong with a data set, as sentences a user can act on."""


class DataError(Exception):
    """A data set that cannot be used as it is.

    The message is plain prose that says what is wrong and what to do, so a command line can print it
    without a traceback.
    """


class BadFileError(Exception):
    """What is wrong inside a data set's files. `load` adds where they lie and what to do about it."""

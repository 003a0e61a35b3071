"""What ends a command early. The message is one line: what is wrong, where, and what to do."""

DONE = 0
FAILED = 1
WRONG_USAGE = 2
NO_ANSWER = 3
REFUSED = 7
INTERRUPTED = 130


class Problem(Exception):  # noqa: N818 - no fault of the program's
    """The work cannot be done, or the answer is no: exit status 1."""

    status = FAILED


class Refused(Problem):
    """The other side has not allowed this node, or is not who was called: exit status 7."""

    status = REFUSED


class WrongUsage(Exception):  # noqa: N818 - no fault of the program's
    """The command line, the environment or the configuration makes no sense: exit status 2."""

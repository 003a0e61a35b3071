"""What an exception says to who uses a node: Trio wraps what leaves a nursery into groups."""


def alone(error: BaseException) -> BaseException:
    """An exception without the groups around it that hold nothing else."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

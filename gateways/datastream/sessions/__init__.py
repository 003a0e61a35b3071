"""State machines of data streams: no socket, clock or disk.

Bytes and answers go in; bytes, questions and decisions come out.
"""

from .client import ClientSession
from .operation import OpenOperation, OperationError
from .relay import CONFIRMED_AT_ONCE, WaitingRoom
from .server import Question, QuestionKind, ServerSession

__all__ = [
    "CONFIRMED_AT_ONCE",
    "ClientSession",
    "OpenOperation",
    "OperationError",
    "Question",
    "QuestionKind",
    "ServerSession",
    "WaitingRoom",
]

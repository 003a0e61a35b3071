"""State machines of data streams: no socket, clock or disk.

Bytes and answers go in; bytes, questions and decisions come out.
"""

from .client import ClientSession
from .operation import OpenOperation, OperationError
from .relay import (
    Answer,
    Append,
    AskEntries,
    AskHeader,
    DeclaredOtherwise,
    HistoriesDiffer,
    OpenedLog,
    OpenLog,
    ReadOwn,
    RelayEnds,
    RelaySession,
    StartData,
    Step,
    Truncate,
    Wait,
)
from .server import Question, QuestionKind, ServerSession

__all__ = [
    "Answer",
    "Append",
    "AskEntries",
    "AskHeader",
    "ClientSession",
    "DeclaredOtherwise",
    "HistoriesDiffer",
    "OpenLog",
    "OpenOperation",
    "OpenedLog",
    "OperationError",
    "Question",
    "QuestionKind",
    "ReadOwn",
    "RelayEnds",
    "RelaySession",
    "ServerSession",
    "StartData",
    "Step",
    "Truncate",
    "Wait",
]

"""What `analytics` raises. Each message is one line: what happened, where, what to do."""

# ruff: noqa: N818 - names say what happened, and most of them are read in `except` clauses

from logstore import ExplainedError


class AnalyticsError(ExplainedError):
    """An export, or an analysis of one, that cannot do what it was asked to."""


class MissingExtra(AnalyticsError):
    """A library is not installed that only a part of the program needs."""


class NotAnExport(AnalyticsError):
    """The directory holds something else than an export, or something beside one."""


class OtherExport(AnalyticsError):
    """The export is another node's, or was made with other settings, or of a newer store."""


class ExportTooNew(AnalyticsError):
    """The export was written by a later version than this one."""


class ExportBusy(AnalyticsError):
    """Another process is writing this export."""


class ExportDamaged(AnalyticsError):
    """A file of the export is not what was written."""


class ExportFailed(AnalyticsError):
    """The disk is full, or may not be written, or failed. What was there is still whole."""


class BadInput(AnalyticsError):
    """What a pipeline was given is no export's rows."""


class BadOption(AnalyticsError):
    """An option of the data source that makes no sense."""


class BadQuery(AnalyticsError):
    """A query that is no SELECT, or that names what is not there or may not be read."""


class QueryFailed(AnalyticsError):
    """A query that came to no end: memory, the disk, or a file of an export."""


class OffsetRefused(AnalyticsError):
    """A stream's offset does not belong to this store."""


class JavaMissing(AnalyticsError):
    """Spark needs Java 17 or newer."""


class SparkFailed(AnalyticsError):
    """Spark ended with an error."""


class ClassesNotPrepared(AnalyticsError):
    """There is no archive of Java's classes, and none can be made."""

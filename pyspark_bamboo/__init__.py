"""What Spark looks for when it meets `format("bamboo")`: a package of this name, a class of that.

Nothing else is here; the data source itself is in `analytics`.
"""

from analytics import BambooDataSource as DefaultSource

__all__ = ["DefaultSource"]

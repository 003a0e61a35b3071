"""Everything that `wire` raises about bytes or values that break a rule."""


class NeedMore(Exception):  # noqa: N818 - no error: the usual end of a stream's bytes so far
    """The bytes end before the value does; with more of them the same call may succeed."""

    field: str
    """What was being read when they ended, as the specification calls it."""

    def __init__(self, field: str = "VarU64") -> None:
        super().__init__(field)
        self.field = field


class Violation(Exception):  # noqa: N818 - the name that the specifications use
    """A broken rule of a specification, whoever broke it."""

    rule: str
    """The section that states the rule, such as "point2point.md 2"."""
    detail: str

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(rule, detail)
        self.rule = rule
        self.detail = detail

    @property
    def finding(self) -> str:
        """What was found and where, without the rule."""
        return self.detail

    def __str__(self) -> str:
        return f"{self.finding} ({self.rule})"


class EntryError(Violation):
    """An entry, or a part of one, that does not parse or cannot be encoded."""

    field: str
    """The field at fault, as bamboo.md calls it."""

    def __init__(self, field: str, detail: str, rule: str = "bamboo.md Entry encoding") -> None:
        super().__init__(rule, detail)
        self.args = (field, detail, rule)
        self.field = field

    @property
    def finding(self) -> str:
        return f"{self.field}: {self.detail}"


class LZFooError(Violation):
    """Compressed bytes that no encoder may have made."""

    position: int
    """Index in the compressed bytes of the packet where the element at fault begins."""

    def __init__(self, position: int, detail: str) -> None:
        super().__init__("encodings.md LZFoo", detail)
        self.args = (position, detail)
        self.position = position

    @property
    def finding(self) -> str:
        return f"{self.detail}, at byte {self.position} of the compressed bytes"


class SignatureLibraryError(Exception):
    """The signature library's verdicts are not those that every peer has to reach."""

"""Private: a figure that depends on votes, and so is itself private.

A data-dependent cost (Papernot et al. 2018, exact per-instance, smooth sensitivity, ...) may neither stop a study,
nor enter a ledger, nor be published: the stop, or the figure, would leak votes (docs/explanation/mathematics.md,
section 10). So every data-dependent accountant returns a Private, which is neither a number nor an array: it cannot be
compared, converted, iterated, pickled, or written as JSON or text. `for_research` is the one way out;
tests/unit/protocols/research/test_private.py lists who may call it, and reads the source of every package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

WHY = "depends on private votes: for research reports; it must not stop a study, enter a ledger or be published"


class Private(Generic[T]):
    """A value that depends on private votes; see the module's docstring. Immutable.

    `map`, `join`, `then` and `gather` compute with it, the result being Private too; `for_research` gives the bare
    value.
    """

    __slots__ = ("_value",)
    _value: T
    # NumPy must neither wrap nor broadcast over it.
    __array_ufunc__ = None

    def __init__(self, value: T) -> None:
        object.__setattr__(self, "_value", value)

    def map(self, function: Callable[[T], U]) -> Private[U]:
        """function(value), as private as the value."""
        return Private(function(self._value))

    def join(self, other: Private[V], function: Callable[[T, V], U]) -> Private[U]:
        """function(this value, the other value), as private as both."""
        return Private(function(self._value, other._value))

    def then(self, function: Callable[[T], Private[U]]) -> Private[U]:
        """function(value), for a function that returns a Private."""
        return function(self._value)

    @staticmethod
    def gather(figures: Iterable[Private[U]]) -> Private[list[U]]:
        """Many private values as one private list."""
        return Private([figure._value for figure in figures])

    def for_research(self) -> T:
        """The bare value, for a research report that marks it as private."""
        return self._value

    def __repr__(self) -> str:
        return "Private(a figure that depends on votes; not shown)"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Private is immutable; {name} cannot be set")

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"this figure {WHY}")

    __float__ = __int__ = __index__ = __complex__ = __bool__ = __round__ = __hash__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse  # type: ignore[assignment]  # refuses, never answers
    __iter__ = __len__ = __getitem__ = __contains__ = __array__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __format__ = __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse  # type: ignore[assignment]  # as above

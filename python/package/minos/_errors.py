"""Errors with further attributes."""

from typing import Dict, Mapping, Tuple, Type, Union

from ._minos import Error

_Name = Union[bytes, str]


class Partial(Error):
    """Some of many operations failed; the others were executed."""

    found: Dict[_Name, bytes]
    """The values that get_many read."""
    failed: Dict[_Name, Exception]
    """The error of each key that failed."""

    def __init__(self, found: Mapping[_Name, bytes], failed: Mapping[_Name, Exception]) -> None:
        first = next(iter(failed.values()), None)
        super().__init__(f"{len(failed)} of the keys failed, the first because: {first}")
        self.found = dict(found)
        self.failed = dict(failed)

    def __reduce__(self) -> Tuple[Type["Partial"], Tuple[Dict[_Name, bytes], Dict[_Name, Exception]]]:
        # For pickle, which would otherwise pass the text alone.
        return Partial, (self.found, self.failed)

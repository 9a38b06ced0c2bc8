"""How this hospital's own records are read: where they are, and what its words mean in a study."""

from __future__ import annotations

from dataclasses import dataclass, field

from party.data.mapping import DataMapping
from party.data.source import Source


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The table [data] of node.toml, and the mapping file that it names.

    name: of the data set, to which lifetime caps belong; loader: the kind of source, a key of party.data.LOADERS;
    source: where the private records are; patient: column that names the patient (images: the separator that ends the
    patient's part of a file name), whose records all go to one teacher, "" if every record is a patient; group: column
    of the privacy group, "" for none; mapping: how the columns are written.
    """

    name: str
    loader: str
    source: Source
    patient: str = ""
    group: str = ""
    mapping: DataMapping = field(default_factory=DataMapping)

    @property
    def shown(self) -> str:
        """How messages name the source: without passwords."""
        return self.source.shown

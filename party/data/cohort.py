"""A source of persons and events, one record a person of a cohort; a features file says what is made of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from party.data.features_file import IDENTITY, CohortTable, Event, FeaturesFile, Person, read_features, table_of
from party.data.mapping import Form
from party.data.records import Records
from party.data.settings import DataSettings
from party.data.source import Columns, TableSource
from protocols.errors import DataCorrupt
from protocols.study.terms import Terms
from runtime.tables import VALUES, wanted_columns


class CohortSource(TableSource):
    """A subclass gathers persons and events. Who is not in the cohort is a record that is not used: so whether somebody
    is in it changes nobody else's teacher."""

    features: Path

    @abstractmethod
    def gather(self, file: FeaturesFile) -> tuple[Iterable[Person], Mapping[str, Iterable[Event]]]:
        """All persons, and the events of the file's codes by kind. Raises DataUnavailable, DataCorrupt."""

    def header(self, form: Form) -> list[str]:
        return [*(each.column for each in read_features(self.features).columns), IDENTITY]

    def columns(self, names: Sequence[str] | None, form: Form) -> Columns:
        """Of the cohort alone."""
        header = self.header(form)
        return {name: self._table.columns[name] for name in wanted_columns(self.features, names or header, header)}

    def records(self, settings: DataSettings, terms: Terms) -> Records:
        """One record a person of the source, used if the person is in the cohort."""
        if settings.group:
            raise DataCorrupt(f"{self.shown}: data.group is {settings.group!r}; allowed: none with a cohort")
        found, table = super().records(settings, terms), self._table
        shape = (len(table.everybody), *found.inputs.shape[1:])
        if np.prod(shape) > VALUES:
            raise DataCorrupt(f"{self.shown}: {len(table.everybody)} persons; allowed: at most {VALUES} values")
        inputs, labels = np.zeros(shape, np.float32), np.zeros(len(table.everybody), np.int64)
        used = np.zeros(len(table.everybody), bool)
        inputs[table.rows], labels[table.rows], used[table.rows] = found.inputs, found.labels, found.usable
        return Records(inputs, labels, table.everybody if settings.patient else None, None, used)

    @cached_property
    def _table(self) -> CohortTable:
        # Gathered once: a second answer of a database may differ.
        file = read_features(self.features)
        return table_of(file, *self.gather(file))

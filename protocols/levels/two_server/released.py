"""What a release shows of a guardian: its signature of each batch's labels, or of noisy sums where records vote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.aggregation import opened_signature
from protocols.levels.two_server.signed_labels import SignedLabels, signed_labels
from protocols.levels.two_server.statement import check_opened
from protocols.refusals.code import Code
from protocols.release.signatures import read_signatures
from protocols.release.sums import read_again, read_votes
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import guarded
from protocols.votes import NOT_ASKED


@dataclass(frozen=True, eq=False)
class SignedRelease:
    """A release of a study with a guardian, as far as the guardian signed it.

    labels: of the whole pool, class ids, ABSTAIN, or NOT_ASKED where nothing was released; cells: the noisy sums, where
    records vote and sums were released; signatures: of each batch; judged: the noisy sums of judges, if released.
    """

    study: DeployedStudy
    labels: Int64[ndarray, " queries"] = field(repr=False)
    cells: Int64[ndarray, "queries classes"] | None = field(repr=False)
    signatures: Mapping[int, bytes] = field(repr=False)
    judged: Int64[ndarray, "rows classes"] | None = field(default=None, repr=False)

    def check(self, number: int, *, request: bytes, queries: Iterable[int]) -> bool:
        """Whether anything is released of the batch with this number, digest and queries: the guardian signed it then.

        Raises Refused("other_labels" or "other_sums") if the guardian's signature is missing, or is of something else.
        """
        ids, cells = np.array(list(queries), dtype=np.int64), self.cells
        if self.study.votes.again(ids):
            cells = self.judged
            if cells is None:
                return False
        else:
            ids = ids[ids < len(self.labels)]
            if (self.labels[ids] == NOT_ASKED).all():
                return False
        signature = self.signatures.get(number)
        code = Code.OTHER_LABELS if cells is None else Code.OTHER_SUMS
        if signature is None:
            raise Refused(code, f"batch {number}: the release lacks the guardian's signature")
        try:
            if cells is not None:
                key = bytes.fromhex(guarded(self.study.confidentiality).signing_key)
                check_opened(signature, cells, study=self.study.digest, request=request, key=key)
            else:
                SignedLabels(self.labels[ids], signature).check(self.study, request, ids.tolist())
        except Refused:
            raise Refused(
                code, f"batch {number}: the guardian did not sign what is released; one of the two was changed"
            ) from None
        return True


def read_signed(folder: Path, study: DeployedStudy, labels: Int64[ndarray, " queries"]) -> SignedRelease | None:
    """What a guardian signed of a release; None if the study has none. labels: the release's. Raises DataCorrupt."""
    if not study.confidentiality.second_server:
        return None
    cells, judged = read_votes(folder, study).cells, read_again(folder, study)
    return SignedRelease(study, labels, cells, read_signatures(folder), judged)


def kept_signature(ledger: Ledger, study: DeployedStudy, request: bytes) -> bytes | None:
    """The guardian's signature of what came out of a batch, from the coordinator's ledger; None if there is none."""
    signed = signed_labels(ledger, request)
    return opened_signature(ledger, request) if signed is None else signed.signature

"""One hospital is told an outcome long after the coordinator's last log entry, under a certificate renewed meanwhile.

The log does not grow while nobody is asked, so an outcome that is told late names an old entry. A hospital that stayed
away after it voted, renewed its certificate, and came back stopped every release of the study, for good: its receipt
came under a certificate that was not yet valid at that entry, and the first receipt of a batch stays.
"""

import datetime

import pytest

from coordinator.release.verify import verify_release
from protocols.errors import DataCorrupt
from tests.harness.refusals import refuses
from tests.harness.released import Consortium, small_study
from tests.harness.studies import NOW

DAY = datetime.timedelta(days=1)
LATE = "hospital-1"


def release(folder, *, party=(NOW, 30), coordinator=(NOW, 30)):
    """The failed checks of a release, made four days later, in which one hospital's outcomes and receipts are signed
    under certificates that were made then, for so many days."""
    consortium = Consortium(folder)
    kept, usual = consortium.keep, consortium.certificate

    def keep(ledger, own, seat, outcome, settled):
        if seat == LATE:
            made, days = party
            consortium.certificates[seat] = consortium.certify(consortium.keys[seat], seat, now=made, days=days)
            made, days = coordinator
            consortium.certificate = consortium.certify(consortium.key, "centre", "coordinator", now=made, days=days)
        kept(ledger, own, seat, outcome, settled)
        consortium.certificate = usual

    consortium.keep = keep
    then = NOW + 4 * DAY
    made = consortium.release(consortium.label(small_study()), folder / "release", now=then)
    return [check for check in verify_release(made, None, now=then) if check.passed is False]


@pytest.mark.parametrize("who", ["party", "coordinator"])
def test_a_certificate_renewed_after_the_last_entry_stops_no_release(tmp_path, who) -> None:
    assert release(tmp_path, **{who: (NOW + 3 * DAY, 30)}) == []


@pytest.mark.parametrize("who", ["party", "coordinator"])
def test_a_certificate_that_had_expired_by_the_last_entry_is_not_taken(tmp_path, who) -> None:
    with refuses(DataCorrupt, 0, LATE, "certificate_expired"):
        release(tmp_path, **{who: (NOW - 3 * DAY, 2)})

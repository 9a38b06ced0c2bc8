"""Every code under which a program refuses, fails or finds something wrong: the machine-readable part of an error.

A code is stable; the text that goes with it is not. On the wire it is sent as text, so that a code of newer software,
unknown to `Code`, is passed on and shown unchanged. The tables in this folder say what each means, what it cost and
what to do next.
"""

from __future__ import annotations

from enum import StrEnum, auto


class Code(StrEnum):
    """A code; it compares and prints as its text: `str(Code.UNKNOWN_STUDY) == "unknown_study"`."""

    # Any command
    INVALID_INPUT = auto()
    DATA_UNAVAILABLE = auto()
    DATA_CORRUPT = auto()
    BUDGET_EXCEEDED = auto()
    STORAGE_FAILED = auto()
    ENGINE_FAILED = auto()
    MALFORMED = auto()
    REFUSED = auto()
    ERROR = auto()
    UNREACHABLE = auto()

    # Enrolment and certificates
    PENDING = auto()
    UNKNOWN_INVITATION = auto()
    INVITATION_EXPIRED = auto()
    INVITATION_WITHDRAWN = auto()
    INVITATION_USED = auto()
    WRONG_NAME = auto()
    NO_REQUEST = auto()
    FINGERPRINT_MISMATCH = auto()
    REVOKED_KEY = auto()
    AUTHORITY_EXPIRED = auto()
    BAD_CERTIFICATE = auto()
    BAD_REQUEST = auto()
    OTHER_KEY = auto()
    SAME_ORGANISATION = auto()
    OTHER_AUTHORITY = auto()
    TOO_EARLY = auto()

    # The connection
    REVOKED = auto()
    WRONG_AUTHORITY = auto()
    CERTIFICATE_EXPIRED = auto()
    CLOCK_JUMPED = auto()
    WRONG_ROLE = auto()
    BAD_SIGNATURE = auto()
    WRONG_SIGNER = auto()
    REPLAYED = auto()
    WIRE_VERSION = auto()
    NO_HELLO = auto()
    ANOTHER_NODE = auto()
    TOO_MANY_STREAMS = auto()
    TOO_MANY_FAULTS = auto()
    UNASKED_FRAMES = auto()
    NOT_READ = auto()
    SUPERSEDED = auto()
    GOING_AWAY = auto()
    TOO_MANY_REFUSALS = auto()
    WRONG_GUARDIAN = auto()
    BUSY = auto()
    ALREADY_RUNNING = auto()
    ALREADY_SERVING = auto()
    HOME_OPEN = auto()

    # Ledgers that were rolled back
    LEDGER_ROLLED_BACK = auto()
    POLICY_ROLLED_BACK = auto()
    PEER_ROLLED_BACK = auto()
    COORDINATOR_ROLLED_BACK = auto()

    # Coordinator and guardian
    GUARDIAN_REFUSES = auto()
    OTHER_SUBMISSION = auto()
    OTHER_COIN = auto()
    OTHER_CHECK = auto()
    OTHER_SUMS = auto()
    TOO_MANY_ATTEMPTS = auto()
    TOO_MANY_CHECKS = auto()
    OTHER_ROUND = auto()
    UNSIGNED_VOTES = auto()
    BAD_SEAL = auto()
    BAD_VOTES = auto()

    # What a node refuses to answer
    UNKNOWN_STUDY = auto()
    NOT_APPROVED = auto()
    OTHER_STUDY = auto()
    OTHER_COORDINATOR = auto()
    STUDY_ENDED = auto()
    WRONG_SEAT = auto()
    OTHER_POOL = auto()
    OTHER_SHAPE = auto()
    BATCH_TOO_LARGE = auto()
    QUERY_LIMIT = auto()
    QUERY_REPEATED = auto()
    NOT_QUERIER = auto()
    NOT_ENROLLED = auto()
    QUORUM_LOST = auto()
    NO_QUERIER = auto()
    NO_INFERENCE = auto()
    OTHER_SHARERS = auto()
    OTHER_SURVIVORS = auto()
    NOT_A_SHARER = auto()
    NOT_A_SURVIVOR = auto()
    TOO_FEW_PARTIES = auto()
    UNSIGNED_OUTCOME = auto()
    OTHER_VOTES = auto()
    NO_SUCH_STEP = auto()
    BATCH_REUSED = auto()
    UNKNOWN_BATCH = auto()
    BAD_OUTCOME = auto()
    DIGEST_MISMATCH = auto()
    SETTLED_OTHERWISE = auto()
    SETTLES_UPWARDS = auto()
    WITHDRAWN = auto()
    NO_TEACHERS = auto()
    NO_RECORD_VOTES = auto()
    COULD_NOT_VOTE = auto()
    TEACHERS_FAILED = auto()
    LATE = auto()
    BAD_RECEIPT = auto()
    TEACHERS_LATE = auto()
    ABSENT = auto()
    BAD_REPLY = auto()

    # Lifetime caps and approvals
    LIFETIME_CAP = auto()
    NO_LIFETIME_CAP = auto()
    LIFETIME_CAP_CHANGED = auto()
    LIFETIME_CURRENCY = auto()
    APPROVED_ELSEWHERE = auto()
    NOT_WITHDRAWN = auto()
    NOT_CONFIRMED = auto()

    # A labelling
    LABELLING_STOPPED = auto()
    LABELLING_FAILED = auto()
    LABELLING_RUNS = auto()
    CAN_BE_FINISHED = auto()
    NO_OPEN_BATCH = auto()
    OTHER_BATCH = auto()
    GIVEN_UP = auto()

    # Findings of an audit
    UNPROVEN_CHARGES = auto()
    VERIFICATION_FAILED = auto()
    NOT_VERIFIED = auto()
    CHAIN_BROKEN = auto()
    SUMS_DIFFER = auto()
    BAD_EVIDENCE = auto()
    NO_EVIDENCE = auto()
    ROLLED_BACK = auto()
    OUTCOME_FALSE = auto()
    OUTCOME_DIFFERS = auto()
    RELEASE_DIFFERS = auto()

from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Array(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("study", "run", "number", "ids", "inputs", "relayed", "model")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    RELAYED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    study: bytes
    run: bytes
    number: int
    ids: Array
    inputs: Array
    relayed: _containers.RepeatedCompositeFieldContainer[Array]
    model: bytes
    def __init__(self, study: _Optional[bytes] = ..., run: _Optional[bytes] = ..., number: _Optional[int] = ..., ids: _Optional[_Union[Array, _Mapping]] = ..., inputs: _Optional[_Union[Array, _Mapping]] = ..., relayed: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., model: _Optional[bytes] = ...) -> None: ...

class VoteReply(_message.Message):
    __slots__ = ("batch_digest", "votes")
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    batch_digest: bytes
    votes: Array
    def __init__(self, batch_digest: _Optional[bytes] = ..., votes: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("study", "batch_digest", "answered", "guardian")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    GUARDIAN_FIELD_NUMBER: _ClassVar[int]
    study: bytes
    batch_digest: bytes
    answered: Array
    guardian: bytes
    def __init__(self, study: _Optional[bytes] = ..., batch_digest: _Optional[bytes] = ..., answered: _Optional[_Union[Array, _Mapping]] = ..., guardian: _Optional[bytes] = ...) -> None: ...

class ConcealedVotes(_message.Message):
    __slots__ = ("batch_digest", "arrays")
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    batch_digest: bytes
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, batch_digest: _Optional[bytes] = ..., arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("study", "batch_digest", "step", "arrays")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    study: bytes
    batch_digest: bytes
    step: str
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, study: _Optional[bytes] = ..., batch_digest: _Optional[bytes] = ..., step: _Optional[str] = ..., arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class StepReply(_message.Message):
    __slots__ = ("batch_digest", "step", "arrays")
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    batch_digest: bytes
    step: str
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, batch_digest: _Optional[bytes] = ..., step: _Optional[str] = ..., arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class Arrays(_message.Message):
    __slots__ = ("arrays",)
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("batch_digest", "spent")
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    batch_digest: bytes
    spent: int
    def __init__(self, batch_digest: _Optional[bytes] = ..., spent: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "reason", "signature")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    code: str
    reason: str
    signature: bytes
    def __init__(self, code: _Optional[str] = ..., reason: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("vote_request", "vote_reply", "outcome", "settled", "refusal", "concealed_votes", "step_request", "step_reply")
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_REPLY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    CONCEALED_VOTES_FIELD_NUMBER: _ClassVar[int]
    STEP_REQUEST_FIELD_NUMBER: _ClassVar[int]
    STEP_REPLY_FIELD_NUMBER: _ClassVar[int]
    vote_request: VoteRequest
    vote_reply: VoteReply
    outcome: Outcome
    settled: Settled
    refusal: Refusal
    concealed_votes: ConcealedVotes
    step_request: StepRequest
    step_reply: StepReply
    def __init__(self, vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote_reply: _Optional[_Union[VoteReply, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., settled: _Optional[_Union[Settled, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., concealed_votes: _Optional[_Union[ConcealedVotes, _Mapping]] = ..., step_request: _Optional[_Union[StepRequest, _Mapping]] = ..., step_reply: _Optional[_Union[StepReply, _Mapping]] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("count", "hash")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    count: int
    hash: bytes
    def __init__(self, count: _Optional[int] = ..., hash: _Optional[bytes] = ...) -> None: ...

class SeatHeads(_message.Message):
    __slots__ = ("study", "seat", "own", "coordinator", "untold", "proof")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    SEAT_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    UNTOLD_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    study: bytes
    seat: str
    own: Head
    coordinator: Head
    untold: _containers.RepeatedScalarFieldContainer[bytes]
    proof: bytes
    def __init__(self, study: _Optional[bytes] = ..., seat: _Optional[str] = ..., own: _Optional[_Union[Head, _Mapping]] = ..., coordinator: _Optional[_Union[Head, _Mapping]] = ..., untold: _Optional[_Iterable[bytes]] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("versions", "software", "session", "seats", "withdrawn")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEATS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    software: str
    session: bytes
    seats: _containers.RepeatedCompositeFieldContainer[SeatHeads]
    withdrawn: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, versions: _Optional[_Iterable[int]] = ..., software: _Optional[str] = ..., session: _Optional[bytes] = ..., seats: _Optional[_Iterable[_Union[SeatHeads, _Mapping]]] = ..., withdrawn: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "session", "time_ms", "refused")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    version: int
    session: bytes
    time_ms: int
    refused: _containers.RepeatedCompositeFieldContainer[Refused]
    def __init__(self, version: _Optional[int] = ..., session: _Optional[bytes] = ..., time_ms: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[Refused, _Mapping]]] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("study", "seat", "code", "reason")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    SEAT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    study: bytes
    seat: str
    code: str
    reason: str
    def __init__(self, study: _Optional[bytes] = ..., seat: _Optional[str] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("session", "round", "nonce", "study", "seat", "own", "seen", "envelope", "proof")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    SEAT_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    round: int
    nonce: bytes
    study: bytes
    seat: str
    own: Head
    seen: Head
    envelope: bytes
    proof: bytes
    def __init__(self, session: _Optional[bytes] = ..., round: _Optional[int] = ..., nonce: _Optional[bytes] = ..., study: _Optional[bytes] = ..., seat: _Optional[str] = ..., own: _Optional[_Union[Head, _Mapping]] = ..., seen: _Optional[_Union[Head, _Mapping]] = ..., envelope: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("nonce", "round", "study", "seat", "own", "seen", "envelope")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    SEAT_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    round: int
    study: bytes
    seat: str
    own: Head
    seen: Head
    envelope: bytes
    def __init__(self, nonce: _Optional[bytes] = ..., round: _Optional[int] = ..., study: _Optional[bytes] = ..., seat: _Optional[str] = ..., own: _Optional[_Union[Head, _Mapping]] = ..., seen: _Optional[_Union[Head, _Mapping]] = ..., envelope: _Optional[bytes] = ...) -> None: ...

class Renew(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    def __init__(self, request: _Optional[bytes] = ...) -> None: ...

class Renewed(_message.Message):
    __slots__ = ("certificate",)
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    def __init__(self, certificate: _Optional[bytes] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("code", "reason")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    code: str
    reason: str
    def __init__(self, code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("hello", "welcome", "ask", "answer", "renew", "renewed", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    welcome: Welcome
    ask: Ask
    answer: Answer
    renew: Renew
    renewed: Renewed
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., renew: _Optional[_Union[Renew, _Mapping]] = ..., renewed: _Optional[_Union[Renewed, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class Signed(_message.Message):
    __slots__ = ("body", "signature", "certificate")
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    signature: bytes
    certificate: bytes
    def __init__(self, body: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class Enrol(_message.Message):
    __slots__ = ("party", "token", "request")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    party: str
    token: bytes
    request: bytes
    def __init__(self, party: _Optional[str] = ..., token: _Optional[bytes] = ..., request: _Optional[bytes] = ...) -> None: ...

class Enrolled(_message.Message):
    __slots__ = ("certificate", "code", "reason")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    code: str
    reason: str
    def __init__(self, certificate: _Optional[bytes] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

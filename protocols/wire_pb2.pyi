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
    __slots__ = ("study", "run", "number", "ids", "inputs")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    study: bytes
    run: bytes
    number: int
    ids: Array
    inputs: Array
    def __init__(self, study: _Optional[bytes] = ..., run: _Optional[bytes] = ..., number: _Optional[int] = ..., ids: _Optional[_Union[Array, _Mapping]] = ..., inputs: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class VoteReply(_message.Message):
    __slots__ = ("batch_digest", "votes")
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    batch_digest: bytes
    votes: Array
    def __init__(self, batch_digest: _Optional[bytes] = ..., votes: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("study", "batch_digest", "answered")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    study: bytes
    batch_digest: bytes
    answered: Array
    def __init__(self, study: _Optional[bytes] = ..., batch_digest: _Optional[bytes] = ..., answered: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("batch_digest", "spent")
    BATCH_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    batch_digest: bytes
    spent: int
    def __init__(self, batch_digest: _Optional[bytes] = ..., spent: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "reason")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    code: str
    reason: str
    def __init__(self, code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("vote_request", "vote_reply", "outcome", "settled", "refusal")
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_REPLY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    vote_request: VoteRequest
    vote_reply: VoteReply
    outcome: Outcome
    settled: Settled
    refusal: Refusal
    def __init__(self, vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote_reply: _Optional[_Union[VoteReply, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., settled: _Optional[_Union[Settled, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

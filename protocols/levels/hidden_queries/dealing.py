"""Hidden queries: what an answering party offers, and what the guardian deals for it.

A model's public architecture as text, which an answering party announces to the querying party and the guardian.

Canonical JSON: equal architectures have equal text. What is read is checked before it is used.

Hidden queries: the messages between querying party and guardian before a batch, so that models can answer it.

The guardian deals correlated randomness for one querying and one answering party
(protocols/levels/hidden_queries/inference/). Half of it goes to the querying party in the clear; the other half is
sealed to a fresh key of the answering party, since the querying party passes it on, and with both halves it could read
a model. The answering party signs that key with the key that the study's roster names, so that nobody can substitute
another; the guardian signs what it sealed, so that nobody can replace it. Each half serves one computation: asking
again gives fresh randomness for a fresh key.

The guardian sees architectures, who answers, and its own randomness: no query, weight, or message of the computation.
Not colluding with the querying party, with a party that answers, or with whoever relays between them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import prod
from typing import Literal

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.edwards import is_public_key
from protocols.crypto.identity import LARGEST_SIGNATURE
from protocols.crypto.randomness import RandomSource
from protocols.errors import DataCorrupt, InvalidInput, MalformedMessage, Refused
from protocols.levels.hidden_queries.inference.architecture import (
    Architecture,
    ConvolutionShape,
    DenseShape,
    LayerShape,
    PoolShape,
    Precision,
    ReLUShape,
)
from protocols.levels.hidden_queries.inference.computing import deal
from protocols.levels.hidden_queries.inference.plan import check_sizes
from protocols.levels.secure_sum.terms import roster_verifier
from protocols.levels.two_server.conversation import check_bytes, receive_arrays, seal, send_arrays, unseal
from protocols.levels.two_server.statement import SIGNATURE_BYTES
from protocols.ranges import integer, whole
from protocols.reading import parse_json
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import hidden
from protocols.study.study import Study
from protocols.wire.messages import Arrays

MAX_CHARACTERS = 2**16
_PADDINGS: dict[str, Literal["valid", "same"]] = {"valid": "valid", "same": "same"}
_KINDS: dict[str, type[LayerShape]] = {
    "convolution": ConvolutionShape, "dense": DenseShape, "pool": PoolShape, "relu": ReLUShape
}  # fmt: skip


def announced(architecture: Architecture) -> str:
    """The architecture's text."""
    names = {kind: name for name, kind in _KINDS.items()}
    layers = [{"kind": names[type(layer)], **asdict(layer)} for layer in architecture.layers]
    content = {"features": architecture.features, "layers": layers, "precision": asdict(architecture.precision)}
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def read_announced(text: str) -> Architecture:
    """The architecture that `text` announces. Raises MalformedMessage, also for sizes that are not allowed."""
    if len(text) > MAX_CHARACTERS:
        raise MalformedMessage(f"an architecture has {len(text)} characters; allowed: at most {MAX_CHARACTERS}")
    try:
        content = parse_json(text, where="an architecture")
    except DataCorrupt:
        raise MalformedMessage("an architecture is not JSON") from None
    top = _fields(content, {"features", "layers", "precision"}, "an architecture")
    if not isinstance(top["layers"], list):
        raise MalformedMessage("layers are not a list")
    try:
        precision = _precision(top["precision"])
        layers = tuple(_layer(number, each) for number, each in enumerate(top["layers"], 1))
        return Architecture(whole("architecture", "features", top["features"]), layers, precision)
    except InvalidInput as error:
        raise MalformedMessage(f"the architecture is not allowed: {error}") from None


def _layer(number: int, content: object) -> LayerShape:
    what = f"layer {number}"
    kind = content.get("kind") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise MalformedMessage(f"{what} is of no known kind; allowed: {', '.join(_KINDS)}")
    assert isinstance(content, dict)
    rest = {name: value for name, value in content.items() if name != "kind"}
    if kind != "convolution":
        return _KINDS[kind](**_whole(rest, _KINDS[kind], what))  # type: ignore[arg-type]  # not a convolution's fields
    kernel, padding = rest.pop("kernel", None), rest.pop("padding", None)
    if not (isinstance(kernel, list) and len(kernel) == 2 and isinstance(padding, str)):
        raise MalformedMessage(f"{what} has no kernel of two sizes, or no padding")
    rest = _fields(rest, {each.name for each in fields(ConvolutionShape)} - {"kernel", "padding"}, what)
    sizes = {name: whole("architecture", "layers", value) for name, value in rest.items()}
    both = (whole("architecture", "layers", kernel[0]), whole("architecture", "layers", kernel[1]))
    if padding not in _PADDINGS:
        raise MalformedMessage(f"{what} has a padding other than valid and same")
    # The names of `sizes` were checked to be the remaining fields, all of them integers.
    return ConvolutionShape(**sizes, kernel=both, padding=_PADDINGS[padding])  # type: ignore[arg-type]


def _precision(content: object) -> Precision:
    found = _fields(content, {each.name for each in fields(Precision)}, "precision")
    bound = found.pop("input_bound")
    if type(bound) is not float and type(bound) is not int:
        raise MalformedMessage("input_bound is not a number")
    return Precision(
        input_bound=bound, **{name: whole("architecture", f"precision.{name}", value) for name, value in found.items()}
    )


def _whole(content: object, kind: type[LayerShape], what: str) -> dict[str, int]:
    """The fields of a dataclass, all integers."""
    found = _fields(content, {each.name for each in fields(kind)}, what)
    return {
        name: whole("architecture", "layers.shift" if name == "shift" else "layers", value)
        for name, value in found.items()
    }


def _fields(content: object, names: set[str], what: str) -> dict[str, object]:
    if not isinstance(content, dict) or set(content) != names:
        raise MalformedMessage(f"{what} has other fields than {', '.join(sorted(names))}")
    return content


SEAL_BYTES = 32
DEAL = np.frombuffer(b"deal", dtype=np.uint8)
_PURPOSE = b"conclave dealt part 1\n"
# Public, and the same for every model of every study: chosen without looking at weights.
_INPUT_BITS, _WEIGHT_BITS, _ACCUMULATOR_BITS = 8, 10, 32


@dataclass(frozen=True, eq=False)
class Offer:
    """An answering party's offer before a batch: its architecture, a fresh key, and its signature."""

    text: bytes = field(repr=False)
    key: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def arrays(self) -> Arrays:
        """The offer as arrays for a message."""
        return tuple(np.frombuffer(each, dtype=np.uint8) for each in (self.text, self.key, self.signature))

    @classmethod
    def read(cls, arrays: Arrays, study: Study) -> Offer:
        """The offer in a message's arrays. Raises MalformedMessage unless they hold a key that can be sealed to, and an
        architecture that fits the study.
        """
        if len(arrays) != 3 or arrays[0].size > MAX_CHARACTERS or not 1 <= arrays[2].size <= LARGEST_SIGNATURE:
            raise MalformedMessage("an offer has other arrays; allowed: an architecture, a key and a signature")
        text, key, signature = arrays
        offer = cls(check_bytes(text, text.size), check_bytes(key, SEAL_BYTES), check_bytes(signature, signature.size))
        if not is_public_key(offer.key):
            raise MalformedMessage("an offer's key is of low order, or none of X25519; allowed: what a generator gives")
        offer.architecture(study)
        return offer

    def architecture(self, study: Study) -> Architecture:
        """The architecture offered, for the study's features and classes. Raises MalformedMessage."""
        try:
            architecture = read_announced(self.text.decode())
            check_architecture(architecture, study)
        except UnicodeDecodeError:
            raise MalformedMessage("an architecture is not text") from None
        except InvalidInput as error:
            raise MalformedMessage(str(error)) from None
        return architecture

    def statement(self, study: bytes, request: bytes, seat: str, queries: int) -> bytes:
        """What the answering party signs."""
        about = study + request + queries.to_bytes(8, "big") + self.key
        return b"conclave offer 1\n" + about + hashlib.sha256(self.text).digest() + seat.encode()


@dataclass(frozen=True, eq=False)
class Dealt:
    """What the guardian deals for one seat: the querying party's half, and the answering party's, sealed and signed."""

    own: Arrays = field(repr=False)
    sealed: ndarray = field(repr=False)
    signature: ndarray = field(repr=False)


def precision_of(study: Study) -> Precision:
    """The fixed point of every model of a study. Raises InvalidInput for a study that hides no queries."""
    return precision(hidden(study.confidentiality).input_bound)


def precision(input_bound: float) -> Precision:
    """The fixed point of models whose inputs are at most so large."""
    return Precision(_INPUT_BITS, _WEIGHT_BITS, _ACCUMULATOR_BITS, input_bound)


def check_architecture(architecture: Architecture, study: Study) -> None:
    """Raises InvalidInput unless it takes the study's inputs, outputs its classes, and is within the limits."""
    if architecture.precision != precision_of(study):
        raise InvalidInput(f"the model has {architecture.precision}; allowed: {precision_of(study)}, as in every model")
    if architecture.classes != study.classes:
        raise InvalidInput(f"the model has {architecture.classes} classes; allowed: the study's {study.classes}")
    if isinstance(study, DeployedStudy) and architecture.features != prod(study.terms.input_shape):
        raise InvalidInput(
            f"the model takes {architecture.features} values; allowed: those of {study.terms.input_shape}, by the terms"
        )
    check_sizes(architecture, study.batch_limit)


def ask_deals(
    channel: Channel, study: Study, request: bytes, queries: int, offers: Mapping[str, Offer]
) -> tuple[dict[str, Dealt], frozenset[str]]:
    """What the guardian deals to each seat, and the seats whose offers it refuses.

    Raises Refused, MalformedMessage, ChannelClosed as `receive_arrays` does.
    """
    digests = (np.frombuffer(each, dtype=np.uint8) for each in (study.digest, request))
    send_arrays(channel, (DEAL, *digests, np.array([queries, len(offers)], dtype=np.int64)))
    dealt: dict[str, Dealt] = {}
    for seat, offer in offers.items():
        send_arrays(channel, (np.array([study.seats[seat]], dtype=np.int64), *offer.arrays()))
        answer = receive_arrays(channel)
        if not answer:
            continue
        if len(answer) != 4:
            raise MalformedMessage(f"the guardian dealt {len(answer)} arrays; allowed: 4")
        dealt[seat] = Dealt(answer[:2], answer[2], answer[3])
    return dealt, frozenset(offers) - set(dealt)


def serve_deals(
    channel: Channel, arrays: Arrays, study: Study, *, key: Ed25519PrivateKey, source: RandomSource
) -> None:
    """The guardian's side, after its first message. source: fresh cryptographic randomness.

    Raises Refused or MalformedMessage; nothing is charged by this conversation, and nothing is kept.
    """
    if not study.confidentiality.asked_by:
        raise Refused(Code.NO_QUERIER, f"study {study.name!r} hides no queries; nothing is dealt")
    if len(arrays) != 4 or arrays[3].ndim != 1:
        raise MalformedMessage("a request to deal is malformed; allowed: study, request, queries and seats")
    if check_bytes(arrays[1], 32) != study.digest:
        raise Refused(Code.UNKNOWN_STUDY, "the request to deal is of a study that is not one of this guardian's")
    request = check_bytes(arrays[2], 32)
    queries, seats = integer("deal", "queries", arrays[3][:1]), integer("deal", "seats", arrays[3][1:])
    if not (1 <= queries <= study.batch_limit and 0 <= seats <= len(study.roster)):
        raise MalformedMessage(f"{queries} queries of {seats} seats; allowed: what the study allows")
    verify = roster_verifier(study)
    for _ in range(seats):
        send_arrays(channel, _part(receive_arrays(channel), study, request, queries, verify, key, source))


def _part(
    arrays: Arrays,
    study: Study,
    request: bytes,
    queries: int,
    verify: Callable[[str, bytes, bytes], bool],
    key: Ed25519PrivateKey,
    source: RandomSource,
) -> Arrays:
    """One seat's parts; empty for an offer that is malformed or not signed by the seat's party."""
    if not arrays:
        raise MalformedMessage("an offer names no seat; allowed: its position on the roster")
    position = integer("offer", "seat", arrays[0])
    if position >= len(study.roster):
        raise MalformedMessage(f"seat {position}; allowed: positions on the roster")
    seat = study.roster[position].party
    try:
        offer = Offer.read(arrays[1:], study)
    except MalformedMessage:
        return ()
    if not verify(seat, offer.statement(study.digest, request, seat, queries), offer.signature):
        return ()
    own, theirs = deal(offer.architecture(study), queries, source=source)
    return (*own, *sealed_part(theirs, key=offer.key, signs=key, study=study.digest, request=request, seat=seat))


def sealed_part(
    dealt: Arrays, *, key: bytes, signs: Ed25519PrivateKey, study: bytes, request: bytes, seat: str
) -> tuple[ndarray, ndarray]:
    """The answering party's half, for the holder of `key` alone, and the guardian's signature of it."""
    sealed = seal(dealt, key=key, study=study, request=request, seat=seat, purpose=_PURPOSE)
    signature = signs.sign(_dealt_statement(sealed, key, study, request, seat))
    return np.frombuffer(sealed, dtype=np.uint8), np.frombuffer(signature, dtype=np.uint8)


def opened_part(
    arrays: Arrays, *, key: X25519PrivateKey, signed_by: bytes, study: bytes, request: bytes, seat: str
) -> Arrays:
    """The answering party's half. Raises MalformedMessage, Refused("bad_signature") if the guardian did not deal it."""
    if len(arrays) != 2 or arrays[0].ndim != 1:
        raise MalformedMessage("a dealt part has other arrays; allowed: what is sealed and its signature")
    sealed = check_bytes(arrays[0], arrays[0].size)
    public = key.public_key().public_bytes_raw()
    try:
        Ed25519PublicKey.from_public_bytes(signed_by).verify(
            check_bytes(arrays[1], SIGNATURE_BYTES), _dealt_statement(sealed, public, study, request, seat)
        )
    except InvalidSignature:
        raise Refused(Code.BAD_SIGNATURE, "the dealt part is not signed by the study's guardian for this key") from None
    return unseal(sealed, key=key, study=study, request=request, seat=seat, purpose=_PURPOSE)


def _dealt_statement(sealed: bytes, key: bytes, study: bytes, request: bytes, seat: str) -> bytes:
    return _PURPOSE + study + request + key + hashlib.sha256(sealed).digest() + seat.encode()

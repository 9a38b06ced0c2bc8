"""What the codes of commands, enrolment, connections and restored ledgers mean."""

from __future__ import annotations

from typing import Final

from protocols.refusals.code import Code
from protocols.refusals.meaning import ANSWERED, ASKER, BOTH, COMMAND, GUARDIAN, NODE, OPERATOR, Cost, Meaning

CONNECTIONS: Final[dict[str, dict[Code, Meaning]]] = {
    "Any command": {
        Code.INVALID_INPUT: Meaning(
            "a value, key or argument is not allowed", "correct the value and run the command again", COMMAND
        ),
        Code.DATA_UNAVAILABLE: Meaning(
            "a file, or what an earlier command makes, is not there",
            "do what the message says; otherwise put the file there, or correct the path, and run the command again",
            COMMAND,
        ),
        Code.DATA_CORRUPT: Meaning(
            "a file has invalid content",
            "correct the file, or fetch it again, and run the command again",
            COMMAND | GUARDIAN,
        ),
        Code.BUDGET_EXCEEDED: Meaning(
            "a charge would pass a cap",
            "nothing: the study's budget is spent; conclave-party budget show has the figures",
            COMMAND | ANSWERED | GUARDIAN,
        ),
        Code.STORAGE_FAILED: Meaning(
            "the disk is full, or a file cannot be written",
            "fix that and run the same command again; nothing is lost",
            COMMAND | ANSWERED | GUARDIAN,
            Cost.STANDS,
        ),
        Code.ENGINE_FAILED: Meaning("a started process ended unexpectedly", "run the command again", COMMAND),
        Code.MALFORMED: Meaning(
            "bytes that are not a message, or an integer outside its [range](wire.md#ranges-of-integers)",
            "check the address, and that both sides run compatible versions",
            COMMAND | ANSWERED | GUARDIAN,
            Cost.STANDS,
        ),
        Code.REFUSED: Meaning(
            "a refusal without its own code",
            "see the message; conclave-party doctor and a server's status say more",
            COMMAND | OPERATOR,
        ),
        Code.ERROR: Meaning(
            "something unexpected",
            "run the command again; if it fails again, report it",
            COMMAND | OPERATOR | GUARDIAN,
            Cost.STANDS,
        ),
        Code.UNREACHABLE: Meaning(
            "the coordinator or, for `ask`, the guardian does not answer",
            "run: conclave-party doctor; for a guardian, ask who runs it",
            COMMAND,
            Cost.STANDS,
        ),
    },
    "Enrolment and certificates": {
        Code.PENDING: Meaning(
            "the operator has not approved the key",
            "read the fingerprint to the operator, who approves it; then run conclave-party enrol again",
            COMMAND,
        ),
        Code.UNKNOWN_INVITATION: Meaning(
            "the token is not from this coordinator", "ask for a new invitation", COMMAND | OPERATOR
        ),
        Code.INVITATION_EXPIRED: Meaning("it was not used in time", "ask for a new invitation", COMMAND | OPERATOR),
        Code.INVITATION_WITHDRAWN: Meaning("the operator withdrew it", "ask the operator", COMMAND | OPERATOR),
        Code.INVITATION_USED: Meaning(
            "another key used the token",
            "tell the operator: somebody else may have had your invitation",
            COMMAND | OPERATOR,
        ),
        Code.WRONG_NAME: Meaning("the request names another party", "use the invitation unchanged", COMMAND | OPERATOR),
        Code.NO_REQUEST: Meaning(
            "`approve`: nobody with that name is waiting",
            "ask the hospital to run conclave-party enrol, then see conclave-coordinator requests",
            COMMAND,
        ),
        Code.FINGERPRINT_MISMATCH: Meaning(
            "`approve`: not the key that was read out",
            "compare again by telephone; if it still differs, revoke the party and invite it again",
            COMMAND | OPERATOR,
        ),
        Code.REVOKED_KEY: Meaning(
            "a certificate of this key was revoked",
            "ask the hospital to make a new key with conclave-party init, under a new invitation",
            COMMAND | OPERATOR,
        ),
        Code.AUTHORITY_EXPIRED: Meaning(
            "the consortium's certificate expired",
            "begin a new consortium: conclave-coordinator init with another --home",
            COMMAND | OPERATOR,
        ),
        Code.BAD_CERTIFICATE: Meaning(
            "the received certificate is for another name or key", "tell the operator", COMMAND | NODE
        ),
        Code.BAD_REQUEST: Meaning("a renewal that cannot be read", "update the node", OPERATOR),
        Code.OTHER_KEY: Meaning("a renewal with another key", "another key needs a new invitation", OPERATOR),
        Code.SAME_ORGANISATION: Meaning(
            "a guardian that is also the coordinator or a party, by name or by key",
            "let another organisation be the guardian: see docs/how-to/run-a-guardian.md",
            COMMAND | OPERATOR | GUARDIAN,
        ),
        Code.OTHER_AUTHORITY: Meaning(
            "`conclave-guardian accept`: another consortium than before", "use another `--home`", COMMAND
        ),
        Code.TOO_EARLY: Meaning(
            "a renewal while more than half of the certificate's validity is left",
            "nothing: the node asks again later",
            OPERATOR,
        ),
    },
    "The connection": {
        Code.REVOKED: Meaning(
            "the party, coordinator or guardian is denied",
            "ask the consortium's operator why; a new key needs a new invitation",
            COMMAND | NODE | OPERATOR | GUARDIAN,
        ),
        Code.WRONG_AUTHORITY: Meaning(
            "a certificate of another consortium",
            "use that consortium's own home, or enrol again",
            COMMAND | NODE | OPERATOR,
        ),
        Code.CERTIFICATE_EXPIRED: Meaning(
            "expired, or not yet valid",
            "set the clock if it is wrong; otherwise ask the operator for a new invitation. A node whose own "
            "certificate is valid dials again",
            COMMAND | NODE | OPERATOR | GUARDIAN,
        ),
        Code.CLOCK_JUMPED: Meaning(
            "the clock is more than 5 minutes off steady progress, so nothing is dated by it",
            "set this machine's clock (NTP), and run the command again; `run` and `serve` accept a new time "
            "that has held for ten minutes",
            COMMAND | NODE | OPERATOR | GUARDIAN,
        ),
        Code.WRONG_ROLE: Meaning(
            "a party's certificate instead of a coordinator's, or the reverse",
            "correct the address: somebody else answers there",
            COMMAND | NODE | OPERATOR | GUARDIAN,
        ),
        Code.BAD_SIGNATURE: Meaning(
            "a signature that does not verify",
            "somebody altered a frame: tell the operator",
            ANSWERED,
            Cost.STANDS,
        ),
        Code.WRONG_SIGNER: Meaning(
            "a frame signed by somebody other than the peer",
            "somebody altered a frame: tell the operator",
            ANSWERED,
        ),
        Code.REPLAYED: Meaning(
            "a frame of another session, or of an earlier round",
            "nothing: it was not answered. If it happens often, tell the operator",
            NODE,
        ),
        Code.WIRE_VERSION: Meaning(
            "no common version of the wire",
            "install a version of conclave-pate that speaks the coordinator's wire version",
            COMMAND | NODE | OPERATOR | GUARDIAN,
        ),
        Code.NO_HELLO: Meaning("no first frame came within 10 seconds", "update the node", BOTH),
        Code.ANOTHER_NODE: Meaning(
            "a live node already answers as this party; the newcomer is refused, and dials less and less often",
            "stop one of the two. If the other is gone, do nothing: this one is accepted within a minute. If nobody"
            " knows the other, tell the operator",
            BOTH,
        ),
        Code.TOO_MANY_STREAMS: Meaning(
            "a party has 4 streams already", "if nobody restarted the node, a copy of it is running", BOTH
        ),
        Code.TOO_MANY_FAULTS: Meaning(
            "sessions of the party ended by its own fault, or by itself within 2 s, 100 times, and more often "
            "than once a minute since",
            "the operator's log says what it was: fix that",
            BOTH,
        ),
        Code.UNASKED_FRAMES: Meaning("more than 16 unrequested frames came in a session", "update the node", BOTH),
        Code.NOT_READ: Meaning(
            "the coordinator asks and does not read the answers",
            "nothing: the node dials again. If it happens often, tell the operator",
            BOTH,
            Cost.STANDS,
        ),
        Code.SUPERSEDED: Meaning(
            "this node serves no seat, and another of the party that does has connected",
            "stop this one: a copy of the home elsewhere serves nothing",
            NODE,
        ),
        Code.GOING_AWAY: Meaning(
            "the coordinator or the guardian stops", "nothing: it is dialled again", ANSWERED, Cost.STANDS
        ),
        Code.TOO_MANY_REFUSALS: Meaning(
            "the coordinator sent more than 1,000 requests a day that had to be refused, over all sessions; or,"
            " to a hospital that asks: this seat refused 100 of its requests in a day, and no more are relayed"
            " to it",
            "tell the consortium's operator: the coordinator asks for what may not be answered. If you ask: see what "
            "the seat refused",
            COMMAND | ANSWERED,
        ),
        Code.WRONG_GUARDIAN: Meaning(
            "another guardian, or other keys of it, than the study names",
            "give the address of the guardian that the study names, or correct the study",
            COMMAND | OPERATOR | GUARDIAN | ASKER,
        ),
        Code.BUSY: Meaning(
            "an older conversation with the guardian about this study is still open",
            "nothing: it is asked again",
            OPERATOR | GUARDIAN | ASKER,
            Cost.STANDS,
        ),
        Code.ALREADY_RUNNING: Meaning(
            "another `run` uses this home, or another `ask` this study", "stop the other one, or see its log", COMMAND
        ),
        Code.ALREADY_SERVING: Meaning(
            "another `serve` uses this home", "stop the other serve, or give another --home", COMMAND
        ),
        Code.HOME_OPEN: Meaning(
            "others may read the home, or could read its key",
            "chmod 700 that folder, after asking who may have read the key in it",
            COMMAND,
        ),
        Code.HOME_MOVED: Meaning(
            "the home was moved: `home move` wrote it into a file that is restored elsewhere",
            "use the home that was restored; if the file was never restored, delete moved.txt here",
            COMMAND,
        ),
        Code.HOME_UNFINISHED: Meaning(
            "the home is being restored, or a restore of it was cut short before what it forfeits was charged",
            "once no restore runs: delete the folder, rename FILE.restored to FILE, and restore it again",
            COMMAND,
        ),
        Code.KEY_LOCKED: Meaning(
            "a private key or a backup has a passphrase, which is missing or wrong",
            "give it at the terminal, or in CONCLAVE_PASSPHRASE, _FILE or _COMMAND; a lost one means a new key",
            COMMAND | NODE,
        ),
        Code.HOME_FORMAT: Meaning(
            "the home's files are of another version's format",
            "install the version that wrote them",
            COMMAND,
        ),
    },
    "Ledgers that went back": {
        Code.LEDGER_ROLLED_BACK: Meaning(
            "the other side, or `policy.sqlite`, knows an entry that is not in this ledger",
            "use the newest copy of this home alone; if it is lost: conclave-party home repair",
            COMMAND | NODE | OPERATOR | GUARDIAN,
            Cost.STANDS,
        ),
        Code.POLICY_ROLLED_BACK: Meaning(
            "a ledger of this home knows more than `policy.sqlite`",
            "put the newest policy.sqlite back; if it is lost: conclave-party home repair",
            COMMAND | NODE,
            Cost.STANDS,
        ),
        Code.PEER_ROLLED_BACK: Meaning(
            "the log shown is older than one seen before",
            "use the newest copy alone of the side whose log it is; if that is the coordinator's, tell the operator",
            COMMAND | NODE | OPERATOR | GUARDIAN,
            Cost.STANDS,
        ),
        Code.COORDINATOR_ROLLED_BACK: Meaning(
            "the node proves an entry of the coordinator's log that is not there",
            "stop serve, replace this home by the newest copy of the coordinator's home, start serve",
            BOTH,
            Cost.STANDS,
        ),
        Code.UNPROVEN_HEAD: Meaning(
            "the node claims an entry of the coordinator's log that is not there, without the coordinator's signature "
            "of it; its seat alone is refused, and the study goes on",
            "an honest node never does this: ask the hospital whether the newest copy of its home is in use; if it "
            "goes on, revoke it",
            BOTH,
            Cost.STANDS,
        ),
    },
}

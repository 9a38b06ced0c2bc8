"""What a party tells a coordinator when it refuses: public reasons, or one code and one text for all others."""

import ast
from pathlib import Path

from protocols.errors import CannotVote, Refused

ROOT = Path(__file__).parents[4]
# Whatever runs, at a party, between a request and its reply.
MODULES = (
    "party/party.py",
    "party/voting/answering.py",
    "party/voting/teacher_process.py",
    "party/data/queries.py",
    "party/budget/watermarks.py",
    "party/voting/trained.py",
    "protocols/votes.py",
    "protocols/levels/level.py",
    "protocols/levels/clear.py",
    "protocols/levels/secure_sum/ballot.py",
    "protocols/levels/hidden_queries/ballot.py",
    "protocols/levels/two_server/aggregation.py",
    "protocols/levels/secure_sum/ballot.py",
    *(
        f"protocols/levels/hidden_queries/inference/{name}.py"
        for name in ("architecture", "plan", "computing", "vote", "model", "comparison")
    ),
)
# Codes of Refused, whose text a coordinator is told. Their reasons say what was asked, what the study says, what is in
# the ledger's own record of what was asked before, or what the hospital's administrator did; never what teachers said.
PUBLIC = {
    "batch_too_large": "the study's limit, and how many were asked",
    "query_limit": "the study's limit, and what was asked",
    "batch_reused": "what was asked before under this number",
    "unknown_batch": "what was asked before",
    "bad_outcome": "how many were asked",
    "other_study": "digests of studies",
    "other_pool": "what was asked, and the public pool",
    "other_shape": "what was asked",
    "no_such_step": "what was asked",
    "NO_INFERENCE": "what was asked before",
    "other_survivors": "what was asked before",
    "other_sharers": "what was asked before",
    "not_a_sharer": "what was asked",
    "not_a_survivor": "what was asked",
    "too_few_parties": "how many parties the coordinator named",
    "withdrawn": "what the administrator did",
    "not_approved": "what the administrator did",
    "no_teachers": "that nothing was trained: the same for every query, and known before any",
    "teachers_late": "that the deadline passed, which the coordinator sees",
    "ledger_rolled_back": "how many batches a ledger holds, all of which the coordinator asked",
}
# Seen by the administrator alone, or at the coordinator's and the guardian's side of the same modules.
ELSEWHERE = {"policy_rolled_back", "bad_outcome", "bad_signature"}


def raised(name):
    """(exception, its code or None) of each call of an exception in a module."""
    for path in MODULES:
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                first = node.args[0] if node.args else None
                yield path, first.attr.lower() if isinstance(first, ast.Attribute) else getattr(first, "id", None)


def test_every_refusal_with_a_reason_of_its_own_is_listed_as_public():
    # A code in a variable is that of another refusal, which is passed on.
    codes = {code for _, code in raised("Refused")} - {"code"}
    assert codes - ELSEWHERE == set(PUBLIC) - ELSEWHERE


def test_what_depends_on_records_has_one_code_and_one_text():
    assert {str(CannotVote(why)) for why in ("votes span [-2, 7]", "a teacher abstains", "")} == {
        "could_not_vote: the node could not vote; its administrator's log says why"
    }
    error = CannotVote("votes span [-2, 7]")
    assert isinstance(error, Refused)
    assert "span" not in repr(error) + str(error.args)
    assert error.why == "votes span [-2, 7]"


def test_votes_are_never_found_wrong_with_an_error_whose_text_is_sent():
    """InvalidInput is not sent, see test_party.py; MalformedMessage is, and is for what the coordinator sent."""
    sent = {"MalformedMessage", "BudgetExceeded"}
    found = {path for name in sent for path, _ in raised(name)}
    assert not found & {
        "protocols/votes.py",
        "party/voting/trained.py",
        "protocols/levels/hidden_queries/inference/model.py",
    }

"""The commented templates of study files, one for teachers that vote and one for records."""

from __future__ import annotations

from protocols.study.votes import TeacherVotes, UnitSums

_TASK = """\
# `study create FILE --pool POOL` fills in input_shape, pool_size and pool_sha256.
[terms]
task = "Tell patients with heart disease from patients without."
class_names = ["no", "yes"]          # class 0 first
label = "disease"                    # the column that holds them
"""
_COLUMNS = """\
deadline_s = 60.0                    # seconds that a party has for a batch
coordinator = "centre"               # the name in the coordinator's certificate
ends = "2099-12-31"                  # the last day (UTC) on which a node answers

# How columns become features; centre and scale are public knowledge, not computed from patients.
[[terms.feature]]
column = "age"
kind = "numeric"
centre = 54.0
scale = 9.0
least = 18                           # what a record may hold: a hospital's node refuses an age of 4400, with its row
most = 110

[[terms.feature]]
column = "cholesterol"
kind = "numeric"
centre = 245.0
scale = 55.0
may_miss = true                      # a second feature says whether it is missing

[[terms.feature]]
column = "sex"
kind = "categorical"
categories = ["female", "male"]

"""
_SEAT = """\
[[party]]
party = "hospital-{letter}"
epsilon = {epsilon}
delta = 1e-5
weight = 1.0
rate = 1.0
"""


def _hospitals(epsilon: float) -> str:
    return "\n".join(_SEAT.format(letter=letter, epsilon=epsilon) for letter in "abcd")


_OF_TEACHERS = """\
# A study between organisations. Every hospital reads and approves this file; its digest is in every message.
# `conclave-simulate plan --optimise` helps to choose noise and threshold for the budgets of the hospitals.
name = "heart"                       # A-Z a-z 0-9 . _ -
classes = 2

# Whose privacy: one record, or all of a party's data. What is seen: only labels, or the noisy histogram too.
unit = "record"
view = "label"
accountant_name = "exact_composition"  # it must be valid for the view; see conclave-simulate accountants

teachers = 10                        # of each party; each has one vote and its own part of the records
query_limit = 300                    # queries in all, at least as many as the pool has
batch_limit = 100                    # queries in one message
answer_rate = 1.0                    # public estimate, used to choose orders
stop = "first-exhausted"             # or drop-exhausted: parties without budget stop voting, the others go on
questions = "given"                  # or uncertainty: each batch asks what a student of the labels so far doubts most
quorum = 3                           # parties that must answer each batch
participation_name = "all"           # everybody in every query

# How a label is released: thresholded_gnmax, gnmax, confident_gnmax, interactive_gnmax or lnmax, each with its own
# parameters. Under the first two every query costs the same, answered or not, and is charged for good when it is asked.
[mechanism]
name = "thresholded_gnmax"
sigma = 8.0                          # noise of each class, a standard deviation in votes
threshold = 26.0                     # votes that the largest noisy count must reach; other queries stay unanswered

# Who sees a vote. clear: the coordinator, which adds the noise; secure_sum and two_server hide votes from it.
[confidentiality]
level = "clear"

"""
_SEATS_OF_TEACHERS = """\
# One table per hospital. weight: of each of its votes; rate: share of the queries in which it takes part.
"""

_OF_RECORDS = """\
# A study between organisations in which records vote, each once. Every hospital reads and approves this file; its
# digest is in every message. `conclave-coordinator study queries FILE --pool POOL --complete study.toml` fills in what
# follows from the pool and the budgets: those lines say so.
name = "heart"                       # A-Z a-z 0-9 . _ -
classes = 2

# Whose privacy: one record, or one patient (all records that name the same patient at a hospital).
unit = "record"
accountant_name = "gaussian"         # filled in
quorum = 3                           # parties that must answer

# Who sees a party's sum. clear: the coordinator, which adds the noise; secure_sum hides it from everybody.
[confidentiality]
level = "clear"
units = 1024                         # votes and noise are whole numbers of so many parts of a vote

# All queries are asked in one batch, and the noisy sums of the votes are released.
[records]
population = 500                     # the most records (patients) that all hospitals have together: it is public
queries = 2                          # filled in
sigma = 8.0                          # filled in: the least noise that every budget affords
votes = 1                            # filled in: in how many queries each record votes
queries_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"  # filled in

"""
_SEATS_OF_RECORDS = """\
# One table per hospital. weight: of its records' votes, filled in; rate: 1.
"""
# By who votes.
TEMPLATES = {
    TeacherVotes.by: _OF_TEACHERS + _TASK + _COLUMNS + _SEATS_OF_TEACHERS + _hospitals(8.0),
    UnitSums.by: _OF_RECORDS + _TASK + _COLUMNS + _SEATS_OF_RECORDS + _hospitals(1.0),
}

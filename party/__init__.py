"""A party: teachers on data that never leaves it, a policy, a ledger; handle(request) -> reply."""

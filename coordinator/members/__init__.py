"""The consortium's authority: who gets a certificate."""

"""What travels between programs: messages, frames, enrolment, relayed requests."""

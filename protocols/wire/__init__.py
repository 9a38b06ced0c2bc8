"""What programs send each other: messages, frames, enrolment, relayed requests."""

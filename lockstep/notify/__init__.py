"""Telling people: messages through an outbox that sends nothing twice, a digest, and feeds."""

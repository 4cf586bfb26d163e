"""Notify people of alerts: messages through an outbox that sends nothing twice, a daily digest, and feeds."""

"""Notify people of alerts by messages, a daily digest and feeds. An outbox makes sure that no message is sent twice."""

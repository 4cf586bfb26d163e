"""Identify living objects by number, as ``id`` does, but without an audit event.

``id`` raises an audit event, for which Python calls the audit hook of ``lockstep.machine_code.watch.watch``. Millions
of such calls took more time than all other work of a trace.
"""

from __future__ import annotations

#: Return a number for an object that no other living object has.
object_id = object.__hash__

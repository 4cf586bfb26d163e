"""Verbs of the ``lockstep`` command, found through the entry points ``lockstep.commands``.

Each verb is an asv ``Command``, so that verbs and asv's own commands share one parser and its global options.
"""

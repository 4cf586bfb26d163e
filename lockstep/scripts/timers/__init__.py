"""Stand-ins for the timers of one library each; ``lockstep.scripts.replace_timers.TIMERS`` has their form."""

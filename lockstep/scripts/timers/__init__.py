"""Stand-ins for the timers of one library each; ``lockstep.scripts.stand_ins.TIMERS`` has their form."""

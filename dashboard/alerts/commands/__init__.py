"""The verbs of the alerts: ``lockstep changes``, ``lockstep alerts`` and ``lockstep bisect``."""

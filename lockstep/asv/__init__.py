"""asv plugin: ``"plugins": [".lockstep.asv"]`` in asv.conf.json brings the environment type "lockstep"."""

from lockstep.asv.environment import LockstepEnvironment

__all__ = ["LockstepEnvironment"]

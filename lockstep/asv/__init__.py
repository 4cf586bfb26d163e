"""asv plugin: ``"plugins": [".lockstep.asv"]`` in asv.conf.json.

It brings the environment type "lockstep" and a publisher that makes the site work without a network.
"""

from lockstep.asv.environment import LockstepEnvironment
from lockstep.asv.site import Offline

__all__ = ["LockstepEnvironment", "Offline"]

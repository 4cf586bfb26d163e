"""asv plugin: ``"plugins": [".lockstep.asv"]`` in asv.conf.json.

It brings the environment type "lockstep" and a publisher that makes the site work without a network.
"""

import sys

# asv knows what a plugin brings once it is imported. A worker, and the processes in which asv runs benchmarks, are
# parts of this package too and have no asv, which takes longer to import than all that they need of it.
if "asv" in sys.modules:
    from lockstep.asv.environment import LockstepEnvironment
    from lockstep.asv.site import Offline

    __all__ = ["LockstepEnvironment", "Offline"]

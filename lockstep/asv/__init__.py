"""asv plugin: ``"plugins": [".lockstep.asv"]`` in asv.conf.json.

It adds the environment type "lockstep" and a publisher that makes the site work without a network.
"""

import sys

# asv finds the classes of a plugin once the plugin is imported. Workers, and the processes in which asv runs
# benchmarks, import this package too, but not asv, which takes longer to import than everything that they need.
if "asv" in sys.modules:
    from lockstep.asv.environment import LockstepEnvironment
    from lockstep.asv.site import Offline

    __all__ = ["LockstepEnvironment", "Offline"]

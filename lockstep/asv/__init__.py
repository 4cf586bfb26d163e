"""asv plugin: ``"plugins": [".lockstep.asv"]`` in asv.conf.json.

The plugin adds the environment type "lockstep" and a publisher that makes the site work without a network.
"""

import sys

# asv finds the classes of a plugin after importing the plugin. Workers and asv's benchmark processes also import this
# package, but not asv, which takes longer to import than everything that they need.
if "asv" in sys.modules:
    from lockstep.asv.environment import LockstepEnvironment
    from lockstep.asv.publish_offline import Offline

    __all__ = ["LockstepEnvironment", "Offline"]

"""Nothing: a plugin that older asv.conf.json files name. ``.dashboard.snapshot`` does what it did."""

import warnings

warnings.warn(
    "the plugin .lockstep.notify.asv_site of asv.conf.json does nothing any more: name .dashboard.snapshot in its "
    "place, which writes the feeds of the alerts",
    FutureWarning,
    stacklevel=1,
)

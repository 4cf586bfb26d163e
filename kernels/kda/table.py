"""The table of tuned configurations of the ``kda`` family."""

from kernels.common.tables import Table

TABLE = Table("kda")

"""The table of what was tuned for the ``kda`` family, shared by its modules."""

from kernels.common.tables import Table

TABLE = Table("kda")

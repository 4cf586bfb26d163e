"""Tools of this repository, which users do not install: the kernel scoreboard and the evaluation of the detector."""

"""Prove from the sources and from machine code which cases a change cannot affect."""

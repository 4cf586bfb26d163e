"""Time a family's candidate configurations and choose the fastest; ``lockstep tune`` writes it to the GPU's table."""

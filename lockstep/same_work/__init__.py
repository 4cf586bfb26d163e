"""State what a call gives the GPU to do, as seen in captured CUDA graphs, and compare it."""

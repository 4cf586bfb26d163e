"""Code that several families share: checks of arguments, tuned tables, workspaces, and building blocks of kernels."""

"""Measure how far an output is from its reference: by norm, by worst row, column, tile and element, and centred.

The norm of a whole output hides an error in a small part of it: one wrong column of 12,000 changes the norm by 0.9 %.
So the error of each slice (row, column, tile, element) is measured as well, as

    ‖got − want‖ / max(‖want‖, √n · rms)    over the n elements of the slice,

where ``rms`` is the root mean square of the whole reference. A slice with large reference values is compared with its
own norm, because rounding errors are relative. A slice with small values is compared with the norm of an average slice,
because the terms of a sum may cancel. The norm of the whole output is the measure of LAPACK's error bounds (LAPACK
Users' Guide, 3rd edition, "How to Measure Errors").

The norm also hides an error in an output that varies little: a constant is within 1 % of "100 plus noise of 1". The
centred norm is relative to ‖want − mean(want)‖, so a constant has an error of 1. KernelBench and robust-kbench compare
elements only, with an absolute and a relative tolerance. They also accept a constant if the offset is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

import torch

from lockstep.record.model import Accuracy

#: Rows and columns of a tile.
TILE = 128

#: Elements converted to float64 at a time: 8 MB on a CPU, about ten times as much with all intermediates.
CHUNK = 1 << 20

#: ``CHUNK`` on a GPU. A chunk of 1 << 20 takes as long there as the launches of its 35 kernels, 0.64 ms (H200).
CUDA_CHUNK = 1 << 23


def accuracy_of(output: torch.Tensor, reference: torch.Tensor) -> Accuracy:
    """Return the errors of ``output`` relative to ``reference``; both have the same shape, of any number of dimensions.

    The last dimension is a row; the other dimensions together are the rows of a matrix. That matrix defines the columns
    and tiles. A vector is one row; a complex number counts as two elements. Integers and booleans are compared by
    value. Where ``reference`` is zero everywhere, errors are absolute.

    NaN is accepted where the reference is NaN, an infinity where the reference is the same infinity. All other elements
    that are not finite in both tensors are counted in ``non_finite`` and left out of the errors. Tensors of different
    shapes raise ``ValueError``.
    """
    if output.shape != reference.shape:
        raise ValueError(f"the output has shape {list(output.shape)}, the reference {list(reference.shape)}")
    if reference.numel() == 0:
        return Accuracy(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    in_pairs = output.is_complex() or reference.is_complex()
    output, reference = _matrix(output, in_pairs), _matrix(reference, in_pairs)
    # Column sums are stored for the whole matrix, row sums for one chunk: the shorter side becomes the columns.
    turned = reference.shape[0] < reference.shape[1]
    if turned:
        output, reference = output.T, reference.T
    errors = _Errors(reference)
    for part, target in zip(_chunks(output), _chunks(reference), strict=True):
        errors.add(part, target)
    return errors.accuracy(turned)


def worst(outputs: Iterable[Accuracy]) -> Accuracy:
    """Return the largest value of each error over all outputs of a call; zeros if the call has no outputs."""
    parts = [Accuracy(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0), *outputs]
    return Accuracy(*(max(getattr(part, error.name) for part in parts) for error in fields(Accuracy)))


class _Errors:
    """Sums up the errors of one output chunk by chunk, so that copies in float64 stay small.

    The sums stay on the device until the end, so that no chunk waits for the host. The first pass over the reference
    computes its mean and mean square, which the error of every row, column, tile and element needs.
    """

    def __init__(self, reference: torch.Tensor) -> None:
        self.rows, self.columns = reference.shape
        count = reference.numel()
        total, squares = self._zeros(reference), self._zeros(reference)
        for chunk in _chunks(reference):
            values = _finite(chunk)
            total += values.sum()
            squares += values.square().sum()
        self.mean = total / count
        self.squares = torch.where(squares > 0, squares, count)  # absolute errors where the reference is zero
        self.mean_square = self.squares / count
        self.error, self.varying, self.rounding, self.non_finite = (self._zeros(reference) for _ in range(4))
        self.row, self.tile, self.element = (self._zeros(reference) for _ in range(3))
        self.column_errors, self.column_squares = (self._zeros(reference, self.columns) for _ in range(2))

    @staticmethod
    def _zeros(like: torch.Tensor, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=like.device)

    def add(self, part: torch.Tensor, target: torch.Tensor) -> None:
        """Add the errors of a chunk of whole rows: ``part`` of the output and ``target`` of the reference."""
        rounded = _rounded(target, part.dtype)
        part, target = part.double(), target.double()
        error = part - target
        if not error.isfinite().all():
            same = (part == target) | (part.isnan() & target.isnan())
            self.non_finite += (~error.isfinite() & ~same).sum()
            error, target, rounded = _finite(error), _finite(target), _finite(rounded)
        error, target_squares = error.square(), target.square()
        self.rounding += (rounded - target).square().sum()
        variance, mean = torch.var_mean(target, correction=0)
        self.varying += target.numel() * (variance + (mean - self.mean).square())
        errors, squares = error.sum(1), target_squares.sum(1)
        self.error += errors.sum()
        self.row = torch.maximum(self.row, self._worst(errors, squares, self.columns))
        self.element = torch.maximum(self.element, self._worst(error, target_squares, 1))
        errors, squares = _bands(error), _bands(target_squares)
        self.column_errors += errors.sum(0)
        self.column_squares += squares.sum(0)
        sizes = torch.outer(_sizes(error, 0), _sizes(error, 1))
        self.tile = torch.maximum(self.tile, self._worst(_bands(errors.T).T, _bands(squares.T).T, sizes))

    def _worst(self, error: torch.Tensor, target_squares: torch.Tensor, count: torch.Tensor | int) -> torch.Tensor:
        """Return the largest squared relative error of slices (rows, columns, tiles or elements) of ``count`` elements.

        Args:
            error: sum of squared errors of each slice.
            target_squares: sum of squared reference values of each slice.
            count: number of elements of a slice.
        """
        return (error / torch.maximum(target_squares, count * self.mean_square)).max()

    def accuracy(self, turned: bool) -> Accuracy:
        """Return the errors of all added chunks; ``turned`` means that rows and columns were exchanged before."""
        across = self._worst(self.column_errors, self.column_squares, self.rows)
        total = self.error / self.squares
        # A constant reference has no variation to divide by.
        varying = torch.where(self.varying > 0, self.error / self.varying, total)
        squared = (total, self.row, across, self.tile, varying, self.element, self.rounding / self.squares)
        norm, row, column, tile, centred, element, rounding = torch.stack(squared).sqrt().tolist()
        if turned:
            row, column = column, row
        return Accuracy(norm, row, column, tile, centred, element, rounding, int(self.non_finite))


def _matrix(tensor: torch.Tensor, in_pairs: bool) -> torch.Tensor:
    if in_pairs:
        tensor = torch.view_as_real(tensor.to(torch.promote_types(tensor.dtype, torch.complex64)).resolve_conj())
    return tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)


def _chunks(matrix: torch.Tensor) -> Iterator[torch.Tensor]:
    """Split a matrix into chunks of whole rows of tiles.

    A chunk has at most ``CHUNK`` elements (``CUDA_CHUNK`` on a GPU), but at least one row of tiles.
    """
    most = CUDA_CHUNK if matrix.is_cuda else CHUNK
    yield from matrix.split(TILE * max(1, most // (TILE * matrix.shape[1])))


def _finite(values: torch.Tensor) -> torch.Tensor:
    return values.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _rounded(target: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (target.to(dtype) if dtype.is_floating_point else target.double().round()).double()


def _sizes(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the lengths of the tiles along a dimension; the last tile may be shorter."""
    starts = torch.arange(0, values.shape[dim], TILE, device=values.device)
    return (values.shape[dim] - starts).clamp(max=TILE)


def _bands(values: torch.Tensor) -> torch.Tensor:
    """Return the column sums of each band of ``TILE`` rows of a matrix; the last band may have fewer rows."""
    remainder = len(values) % TILE
    full_bands = (
        values[: len(values) - remainder].unflatten(0, (-1, TILE)).sum(1) if len(values) > remainder else values[:0]
    )
    return torch.cat([full_bands, values[len(values) - remainder :].sum(0, keepdim=True)]) if remainder else full_bands

"""The array that users hold: NumPy's behaviour, and what is kept of the values when."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from outcrop.arrays.keeper import Keeper
from outcrop.arrays.numpy_like import NumpyLike
from outcrop.arrays.spec import ArraySpec, Persist
from outcrop.errors import InputError
from outcrop.tiers.tier import Tier
from outcrop.units import format_bytes


@dataclass(frozen=True)
class Flush:
    """What a flush did: bytes written, how long it took, and the number of the last commit, 0 if there is none."""

    bytes_written: int
    seconds: float
    generation: int


class Array(NumpyLike):
    """An array on a tier, made by `oc.array`, `oc.open_array` or `oc.place(...).make()`.

    It behaves as the NumPy array `values`. Values are committed by `step()` as often as was asked for, by `flush()`,
    and by `close()`, which the end of a `with` block calls; not when that ends by an exception, and not when the array
    is let go unclosed, which is told in a RuntimeWarning. While a commit is made no other thread may change them.
    """

    def __init__(self, spec: ArraySpec, tier: Tier, keeper: Keeper) -> None:
        self._spec, self._tier, self._keeper = spec, tier, keeper
        self._steps, self._opened = keeper.steps, keeper.generation
        self._values: NDArray[Any] | None = None
        self._show()

    @property
    def values(self) -> NDArray[Any]:
        """The values as a plain NumPy array, where they lie. Raises InputError when the array is closed."""
        if self._values is None:
            raise InputError("the array is closed; open it again with oc.open_array")
        return self._values

    @property
    def tier(self) -> Tier:
        """Where it lives."""
        return self._tier

    @property
    def access(self) -> str:
        """ "read" or "update"."""
        return self._spec.access

    @property
    def persist(self) -> Persist:
        """When values are committed."""
        return self._spec.persist

    @property
    def path(self) -> Path | None:
        """Where a later process finds them."""
        return self._spec.path

    @property
    def primitive(self) -> str:
        """What makes values durable here: "MAP_SYNC + cache-line write-back", "msync", "direct writes + fdatasync",
        "buffered writes + fdatasync", or "none" where nothing does."""
        return self._keeper.primitive

    @property
    def generation(self) -> int:
        """Number of the last commit; 0 if there has been none."""
        return self._keeper.generation

    @property
    def steps(self) -> int:
        """Steps done since the array was made, by earlier processes, too, as far as they were committed."""
        return self._steps

    def step(self) -> Flush | None:
        """To be called after each step: counts it, and commits where that is due. Raises StorageError."""
        self._steps += 1
        every = self._spec.commit_every
        if every and self._steps % every == 0:
            return self.flush()
        if self.access == "read":
            self.values.flags.writeable = False
        return None

    def flush(self) -> Flush:
        """Make the values durable now: a commit of an array that is committed, else as well as its file allows.

        After that an array that is only read refuses writes. Raises StorageError; the last commit is whole then, too.
        """
        _ = self.values  # not of a closed array
        begin = time.perf_counter()
        written = self._keeper.flush(self._steps)
        seconds = time.perf_counter() - begin
        self._show()
        if self.access == "read":
            self.values.flags.writeable = False
        return Flush(written, seconds, self.generation)

    def close(self) -> None:
        """Commit what is to be committed, and let go of everything. Views stay valid as long as they are there."""
        if self._values is None:
            return
        try:
            if self._spec.is_committed:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything without a commit."""
        if self._values is not None:
            self._values = None
            self._keeper.close()

    def __del__(self) -> None:
        if getattr(self, "_values", None) is None:  # closed, or never made
            return
        is_behind = (self.persist == "end" and self.generation == self._opened) or self._steps != self._keeper.steps
        self.abandon()
        if self._spec.is_committed and is_behind and not self._keeper.is_sealed:
            text = f"{self.path} was not closed: what changed after its commit {self.generation} is lost; use `with`"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def __enter__(self) -> Array:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def __repr__(self) -> str:
        what = f"{'x'.join(map(str, self._spec.shape)) or '()'} {self._spec.dtype}, {format_bytes(self._spec.nbytes)}"
        kept = f", committed by {self.primitive}: {self.generation}" if self._spec.is_committed else ""
        return f"<outcrop Array {what} on {self._tier.name} for {self.access}{kept}>"

    def _show(self) -> None:
        self._values = self._keeper.values(self._spec.shape, self._spec.dtype)

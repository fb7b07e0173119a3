"""What makes an object with `values` behave as a NumPy array: operators, functions, indexing, anything else by name.

NumPy sees the plain array, so results of operators and functions are plain arrays, and `a += 1`,
`np.add(b, 1, out=a)` and `np.copyto(a, b)` change the values where they lie. Views (`a[2:5]`, `a.T`) are plain arrays,
too, of the same bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTS = ("flat", "imag", "real")
"""Attributes of NumPy's arrays that stand for values: to set one changes them."""


class NumpyLike(np.lib.mixins.NDArrayOperatorsMixin):
    """Mix-in; `values` is all it needs."""

    @property
    @abstractmethod
    def values(self) -> NDArray[Any]:
        """The plain array."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.values if dtype is None else self.values.astype(dtype, copy=False)
        if copy is False and values is not self.values and not np.may_share_memory(values, self.values):
            raise ValueError(f"an array of {self.values.dtype} cannot be one of {dtype} without a copy")
        return values.copy() if copy and np.may_share_memory(values, self.values) else values

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return self._result(getattr(ufunc, method)(*_plain(inputs), **_plain(options)), options.get("out", ()))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, inputs: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        return self._result(function(*_plain(inputs), **_plain(options)), (options.get("out"),))

    def _result(self, result: Any, out: Any) -> Any:
        """What was asked for as `out` comes back as it was given."""
        given = next((one for one in out if isinstance(one, NumpyLike) and one.values is result), None)
        return result if given is None else given

    def __getitem__(self, index: Any) -> Any:
        return self.values[_plain(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[_plain(index)] = _plain(value)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __bool__(self) -> bool:
        return bool(self.values)

    def __int__(self) -> int:
        return int(self.values)

    def __float__(self) -> float:
        return float(self.values)

    def __complex__(self) -> complex:
        return complex(self.values)

    def __index__(self) -> int:
        return self.values.__index__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.values.__reduce_ex__(protocol)  # copies, and what is sent to other processes, are plain

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name in PARTS:
            setattr(self.values, name, _plain(value))
        else:
            raise AttributeError(f"{name} of an array on a tier stays as it is; take a view, such as a.reshape(...)")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.values, name)


def _plain(value: Any) -> Any:
    """The same with plain arrays in it."""
    if isinstance(value, NumpyLike):
        return value.values
    if type(value) in (tuple, list):
        return type(value)(_plain(one) for one in value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return value

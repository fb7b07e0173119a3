"""Compile a generated kernel with the machine's C compiler. The compiled kernel is kept in the user's cache. The name
of the kernel's file is a hash of the source, the compiler, the flags and the processor.

stencil, dtype, vectors ──► C ──► key = hash(C, compiler, flags, processor) ──► <cache>/kernels/<key>.so ──► address
"""

from __future__ import annotations

import ctypes
import platform
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.language.boundary import FIXED, Boundary
from outcrop.language.generate import generate, symbol
from outcrop.language.stencil import Stencil
from outcrop.shared_object import compiler_identity, find_compiler, load_library, run_compiler, shared_object

# The compiler must not contract or reassociate operations, because the kernel must compute the same bits as NumPy.
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", "-fPIC", "-shared")

VECTOR_BYTES = {"avx512": 64, "avx2": 32, "neon": 16, "sse2": 16, "plain": 0}
"""The number of bytes of a vector for each instruction set. With `plain`, the compiler decides whether it uses
vectors."""

PROCESSOR = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "cache size",
             "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
             "cpu", "revision", "isa", "uarch", "features")  # fmt: skip
"""Lines of /proc/cpuinfo that determine the effect of -march=native, for several architectures. The model name alone is
not enough. Virtual machines use one name for processors of several generations, and may hide some instructions of the
processor."""

Copy: TypeAlias = tuple[int, int]
Calls: TypeAlias = tuple[tuple[int, tuple[Copy, ...], tuple[Copy, ...]], ...]


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel.

    `calls` contains one entry for each stage of an even step, then one for each stage of an odd step. An entry of
    `calls` has the address of a C function, and a pair (field, copy) for each array that the function reads or writes.
    The address of a function is valid until the process ends."""

    isa: str
    calls: Calls
    path: Path


def compile_kernel(stencil: Stencil, dtype: str, isa: str = "auto", boundary: Boundary = FIXED) -> Kernel:
    """Compile `stencil` for `dtype`, or load its kernel from the user's cache. Raises InputError if this processor does
    not have the instruction set `isa`, or if no C compiler is found."""
    chosen = available_isas()[0] if isa == "auto" else isa
    if chosen not in available_isas():
        raise InputError(f"vectors {chosen!r} are not available here; there are {', '.join(available_isas())}")
    source = generate(stencil, dtype, VECTOR_BYTES[chosen], boundary)
    path = _shared_object(source)
    library = load_library(path)
    functions = [getattr(library, symbol(stage)) for stage in range(len(stencil.stages))] * 2
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    copies = zip(addresses, stencil.copies, strict=True)
    calls = tuple((address, one.sources, one.targets) for address, one in copies)
    return Kernel(chosen, calls, path)


@lru_cache
def available_isas() -> tuple[str, ...]:
    """Return the instruction sets of this processor, with the widest vectors first. `plain` is always last."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return ("neon", "plain")
    if machine not in ("x86_64", "amd64"):
        return ("plain",)
    flags = _processor().get("flags", "").split()
    wide = (("avx512", "avx512f"), ("avx2", "avx2"))
    return (*(name for name, flag in wide if flag in flags), "sse2", "plain")


def _shared_object(source: str) -> Path:
    compiler = find_compiler("C")
    content = (source, *compiler_identity(compiler), *FLAGS, *_processor().values())

    def build(beside: Path) -> None:
        file = beside.with_name("kernel.c")
        file.write_text(source)
        run_compiler([*compiler, *FLAGS, str(file), "-o", str(beside), "-lm"], "a generated kernel")

    return shared_object("kernels", content, build)


@lru_cache
def _processor() -> dict[str, str]:
    """Return the properties in PROCESSOR that /proc/cpuinfo lists for the first processor. If /proc/cpuinfo lists none
    of these properties, return the result of `platform.processor()`."""
    found = {}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in takewhile(str.strip, lines):
            name, _, value = line.partition(":")
            if name.strip() in PROCESSOR:
                found[name.strip()] = value.strip()
    return found or {"model": platform.processor()}

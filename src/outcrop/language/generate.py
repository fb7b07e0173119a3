"""From a Program to C: one function with the signature of core/outcrop/kernel/kernel.h.

Rows are updated as whole aligned vectors. For each row that is read at other cells than the updated one, the
vectors around the current one stay in registers and move along; neighbours in x are lanes shifted out of two of
them, never unaligned loads:

    row (dz, dy):   | w[-1] | w[0] | w[1] |          value at dx = -1: last lane of w[-1], all but the last of w[0]
                            x ──►                    then w[-1] = w[0], w[0] = w[1], w[1] = next load

One row of one plane per inner loop, planes inside rows: the rows that neighbouring planes share are then still
in the first-level cache. Blocking several rows or planes in registers was measured and is slower here: it opens
more streams than the prefetchers follow. Cells of the rim are put back after the row.

Vectors are those of GCC and clang (`vector_size`, `__builtin_shufflevector`); with `vector_bytes` 0 the same
loops are written for single cells, in plain C.
"""

from __future__ import annotations

from collections.abc import Iterator

from outcrop.language.program import Apply, Constant, Load, Program, Scalar
from outcrop.language.stencil import Stencil

C_TYPES = {"float32": "float", "float64": "double"}
ITEM_BYTES = {"float32": 4, "float64": 8}
SYMBOL = "outcrop_update"

_STRUCT = """\
struct outcrop_block {
  void *const *const *target;
  const void *const *const *source;
  long planes, y0, y1, x0, x1, nx, pitch;
  const void *scalars;
};
"""


def generate(stencil: Stencil, dtype: str, vector_bytes: int) -> str:
    """C source of the update of `stencil` in `dtype` ("float32" or "float64") with vectors of `vector_bytes`
    (0: none)."""
    lanes = max(1, vector_bytes // ITEM_BYTES[dtype])
    return "\n".join(_Writer(stencil, C_TYPES[dtype], ITEM_BYTES[dtype], lanes).lines()) + "\n"


class _Writer:
    """Writes one kernel; every method yields lines."""

    def __init__(self, stencil: Stencil, c_type: str, item_bytes: int, lanes: int) -> None:
        self.stencil, self.program = stencil, stencil.program
        self.type, self.item_bytes, self.lanes = c_type, item_bytes, lanes
        self.rows = _rows(self.program)

    def lines(self) -> Iterator[str]:
        """The whole file."""
        title = " ".join(f"{self.stencil.name}: {self.stencil.equation}".split())
        yield f"/* {title.replace('*/', '* /')} */"
        yield "#include <math.h>"
        yield _STRUCT
        yield from self._vector_type()
        yield from self._row_function()
        yield from self._block_function()

    def _vector_type(self) -> Iterator[str]:
        if self.lanes == 1:
            yield f"typedef {self.type} v;"
            return
        integer = {4: "int", 8: "long"}[self.item_bytes]
        size = self.lanes * self.item_bytes
        yield f"typedef {self.type} v __attribute__((vector_size({size}), may_alias));"
        yield f"typedef {integer} m __attribute__((vector_size({size})));"

    def _row_function(self) -> Iterator[str]:
        radius_x = self.stencil.radii[2]
        rows = "".join(f", const {self.type} *r{i}" for i in range(len(self.rows)))
        yield (
            f"static inline void row(const struct outcrop_block *b, {self.type} *restrict q, "
            f"const {self.type} *restrict p{rows}) {{"
        )
        yield f"  const {self.type} *s = b->scalars;"
        yield "  (void)s;"
        yield from self._uniforms()
        yield from self._first_vectors()
        yield f"  for (long x = b->x0; x < b->x1; x += {self.lanes}) {{"
        yield from self._next_vectors()
        yield from self._operations()
        yield f"    *(v *)(q + x) = t{len(self.program.operations) - 1};"
        yield from self._move_along()
        yield "  }"
        yield f"  for (long x = b->x0; x < {radius_x} && x < b->x1; x++) q[x] = p[x];"
        yield f"  long rim = b->nx - {radius_x};"
        yield "  for (long x = rim > b->x0 ? rim : b->x0; x < b->x1; x++) q[x] = p[x];"
        yield "}"
        yield ""

    def _block_function(self) -> Iterator[str]:
        yield f"void {SYMBOL}(const struct outcrop_block *b) {{"
        yield "  for (long y = b->y0; y < b->y1; y++)"
        yield "    for (long k = 0; k < b->planes; k++)"
        arguments = [f"({self.type} *)b->target[0][k] + y * b->pitch", self._row_pointer(0, 0, 0)]
        arguments += [self._row_pointer(*row) for row in self.rows]
        yield "      row(b, " + ",\n          ".join(arguments) + ");"
        yield "}"

    def _row_pointer(self, field: int, dz: int, dy: int) -> str:
        return f"(const {self.type} *)b->source[{field}][k + {dz}] + (y + {dy}) * b->pitch"

    # Values that are the same for every cell.

    def _uniforms(self) -> Iterator[str]:
        for place, operation in enumerate(self.program.operations):
            match operation:
                case Scalar(index):
                    yield f"  const v t{place} = {self._splat(f's[{index}]')};"
                case Constant(value):
                    yield f"  const v t{place} = {self._splat(_literal(value, self.type))};"
                case _:
                    pass

    def _splat(self, scalar: str) -> str:
        return scalar if self.lanes == 1 else "{" + ", ".join([scalar] * self.lanes) + "}"

    # The vectors of each row around the current one: w<row>_<i>, i vectors from the current one.

    def _reach(self, row: tuple[int, int, int]) -> tuple[int, int]:
        """First and last vector, counted from the current one, that the row's loads touch."""
        offsets = self.rows[row]
        return min(min(offsets) // self.lanes, 0), max(-(-max(offsets) // self.lanes), 0)

    def _first_vectors(self) -> Iterator[str]:
        for number, row in enumerate(self.rows):
            first, last = self._reach(row)
            if self.lanes > 1:
                for i in range(first, last):
                    yield f"  v w{number}_{_index(i)} = *(const v *)(r{number} + b->x0 + {i * self.lanes});"

    def _next_vectors(self) -> Iterator[str]:
        for number, row in enumerate(self.rows):
            _, last = self._reach(row)
            if self.lanes > 1:
                yield f"    v w{number}_{_index(last)} = *(const v *)(r{number} + x + {last * self.lanes});"

    def _move_along(self) -> Iterator[str]:
        for number, row in enumerate(self.rows):
            first, last = self._reach(row)
            if self.lanes > 1:
                for i in range(first, last):
                    yield f"    w{number}_{_index(i)} = w{number}_{_index(i + 1)};"

    def _operations(self) -> Iterator[str]:
        numbers = {row: number for number, row in enumerate(self.rows)}
        for place, operation in enumerate(self.program.operations):
            match operation:
                case Load(field, (dz, dy, dx)):
                    yield f"    const v t{place} = {self._load(numbers[field, dz, dy], dx)};"
                case Apply(operator, operands):
                    yield from self._apply(place, operator, [f"t{i}" for i in operands])
                case _:
                    pass

    def _load(self, number: int, dx: int) -> str:
        if self.lanes == 1:
            return f"r{number}[x + {dx}]"
        vector, shift = divmod(dx, self.lanes)
        low = f"w{number}_{_index(vector)}"
        if shift == 0:
            return low
        lanes = ", ".join(str(shift + lane) for lane in range(self.lanes))
        return f"__builtin_shufflevector({low}, w{number}_{_index(vector + 1)}, {lanes})"

    def _apply(self, place: int, operator: str, operands: list[str]) -> Iterator[str]:
        infix = {"add": "+", "mul": "*", "div": "/"}
        comparison = {"min": "<", "max": ">"}
        a, b = operands[0], operands[-1]
        if operator in infix:
            yield f"    const v t{place} = {a} {infix[operator]} {b};"
        elif operator == "neg":
            yield f"    const v t{place} = -{a};"
        elif operator in comparison and self.lanes == 1:
            yield f"    const v t{place} = {a} {comparison[operator]} {b} ? {a} : {b};"
        elif operator in comparison:
            yield f"    const m c{place} = {a} {comparison[operator]} {b};"
            yield f"    const v t{place} = (v)(((m){a} & c{place}) | ((m){b} & ~c{place}));"
        else:
            function = {"sqrt": "sqrt", "abs": "fabs"}[operator] + ("f" if self.type == "float" else "")
            if self.lanes == 1:
                yield f"    const v t{place} = {function}({a});"
            else:
                yield f"    v t{place};"
                yield f"    for (int i = 0; i < {self.lanes}; i++) t{place}[i] = {function}({a}[i]);"


def _rows(program: Program) -> dict[tuple[int, int, int], list[int]]:
    """The rows (field, dz, dy) a program reads, each with its offsets in x."""
    rows: dict[tuple[int, int, int], list[int]] = {}
    for load in program.loads:
        dz, dy, dx = load.offset
        rows.setdefault((load.field, dz, dy), []).append(dx)
    return rows


def _index(vector: int) -> str:
    return f"m{-vector}" if vector < 0 else str(vector)


def _literal(value: float, c_type: str) -> str:
    """`value` rounded to the type: once to double by Python, once more by the cast."""
    return f"({c_type}){value.hex()}"

"""Generate C for a Stencil: one function for each stage, with the signature of core/outcrop/kernel/kernel.h.

A row is updated as whole aligned vectors. The inner loop updates one row, or the same row of two planes, or two rows of
two planes. A loop that updates several rows together loads each vector of a neighbouring row once, and uses the vector
for all updated rows. But a loop that updates several rows needs more registers than a loop that updates one row. The
fastest loop depends on the stencil, the processor and the length of rows. So the caller of a kernel chooses the loop,
and the tuner measures each choice. The loop over planes is inside the loop over rows. So rows that the updates of two
neighbouring planes share are still in the first-level cache.

While an inner loop updates its rows, the loop can prefetch another row, one cache line in each iteration. The caller of
the kernel lists the rows that updates of the next planes need (`prefetch` in kernel.h).

At both ends of a row, the results of whole vectors are wrong, because these results ignore the boundary. So the correct
values at both ends of a row are stored after the whole vectors. Cells of a fixed rim get their old values. Cells that
need values beyond the grid are computed one by one. Padding is set to zero. The values for the ends are computed or
saved before the row is stored, because a field may be updated in place:

    | edge: computed or kept |        whole vectors, stored        | edge | padding: 0 |
      ──────────────────────── stored again afterwards ─────────────────────────────

If an update needs a row beyond the grid, the kernel reads the row of the grid that the boundary gives instead
(boundary.py).

For each row that is read, registers hold the current vector and the vectors around it. A shift of lanes makes the
vector of neighbours in x from two vectors in registers. So no load is unaligned:

    row (dz, dy):   | w[-1] | w[0] | w[1] |          value at dx = -1: last lane of w[-1], all but the last of w[0]
                            x ──►                    then w[-1] = w[0], w[0] = w[1], w[1] = next load

The C code uses vector extensions of GCC and Clang (`vector_size`, `__builtin_shufflevector`, and `__builtin_shuffle`
before GCC 12). If `vector_bytes` is 0, the same expressions are written for single cells in plain C. Operations that do
not depend on the cell are computed as scalars before the loop. Functions of values that do not depend on the cell, such
as exp of a parameter, are computed once per call of the kernel. The computation of one such function takes as long as
the update of many cells.
"""

from __future__ import annotations

from collections.abc import Iterator

from outcrop.language.boundary import FIXED, Boundary, Side
from outcrop.language.expressions import Expressions, Place, plus
from outcrop.language.functions import FUNCTIONS, definitions
from outcrop.language.program import Apply, Stage
from outcrop.language.stencil import Stencil

C_TYPES = {"float32": "float", "float64": "double"}
ITEM_BYTES = {"float32": 4, "float64": 8}
_HEAD = """\
#include <math.h>
struct outcrop_block {
  void *const *const *target;
  const void *const *const *source;
  long planes, y0, y1, x0, x1, nx, ny, pitch;
  const void *scalars;
  long rows_at_once;
  const void *const *prefetch;
  long prefetch_rows;
  long z, y;
};
/* These functions return the index of the cell whose value is used beyond the grid. */
static inline long mirrored(long i, long n) {
  while (i < 0 || i >= n) i = i < 0 ? -1 - i : 2 * n - 1 - i;
  return i;
}
static inline long wrapped(long i, long n) {
  while (i < 0) i += n;
  while (i >= n) i -= n;
  return i;
}
/* Prevents vectors in loops over a few cells, because vectors would only add checks. */
#define ONE_BY_ONE __asm__ volatile("")
/* The next row that an inner loop prefetches, or null. */
#define NEXT_AHEAD (next < end ? (const char *)*next++ : 0)
static inline long within(long i, long low, long high) { return i < low ? low : i > high ? high : i; }
"""


def symbol(stage: int) -> str:
    return f"outcrop_update_{stage}"


def generate(stencil: Stencil, dtype: str, vector_bytes: int, boundary: Boundary = FIXED) -> str:
    """Return the C source of the updates of `stencil`. `dtype` is "float32" or "float64". `vector_bytes` is the size of
    a vector, or 0 for no vectors. The source contains no name or text of the stencil, because these texts can come from
    an untrusted manifest. Only the numbers and operators of the stencil are used."""
    lanes = max(1, vector_bytes // ITEM_BYTES[dtype])
    lines = [_HEAD]
    lines += vector_types(C_TYPES[dtype], lanes)
    if used := _functions(stencil):
        lines += definitions(used, dtype, lanes)
    for number in range(len(stencil.stages)):
        lines += _StageWriter(stencil, number, C_TYPES[dtype], lanes, boundary).lines()
    return "\n".join(lines) + "\n"


def _functions(stencil: Stencil) -> list[str]:
    """Return the names of the functions that the stencil uses."""
    operations = (one for stage in stencil.stages for one in stage.program.operations)
    return sorted({one.operator for one in operations if isinstance(one, Apply) and one.operator in FUNCTIONS})


def vector_types(c_type: str, lanes: int) -> Iterator[str]:
    """Yield the definitions of the types `v`, a vector of cells, and `m`, the mask of a comparison. Also yield the
    definition of SHUFFLED(a, b, places), which selects numbers of two vectors."""
    if lanes == 1:
        yield f"typedef {c_type} v;"
        return
    integer, item_bytes = ("int", 4) if c_type == "float" else ("long", 8)
    size = lanes * item_bytes
    yield f"typedef {c_type} v __attribute__((vector_size({size}), may_alias));"
    yield f"typedef {integer} m __attribute__((vector_size({size})));"
    yield "#if defined(__clang__) || __GNUC__ >= 12"
    yield "#define SHUFFLED __builtin_shufflevector"
    yield "#else"
    yield "#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (m){__VA_ARGS__})"
    yield "#endif"


def _blocks(stencil: Stencil, lanes: int) -> list[tuple[int, int]]:
    """Return one pair for each loop of the kernel: the numbers of rows and of planes that the loop updates together.
    The first pair is for the loop that updates one row of one plane."""
    if lanes == 1:  # without vector types, the compiler cannot vectorise a loop over several rows
        return [(1, 1)]
    return [(1, 1), (1, 2), *([(2, 2)] if max(stencil.radii) <= 1 and stencil.ndim == 3 else [])]


class _StageWriter:
    """Writes the functions of one stage. Its methods yield lines of C."""

    def __init__(self, stencil: Stencil, number: int, c_type: str, lanes: int, boundary: Boundary) -> None:
        self.number, self.boundary = number, boundary
        self.stage: Stage = stencil.stages[number]
        self.in_place = [not stencil.storage[target].is_double for target in self.stage.targets]
        reads_older = any((target, 1) in self.stage.reaches for target in self.stage.targets)
        self.reads_target = reads_older or any(self.in_place)
        self.radius_x = stencil.radii[2]
        self.type = c_type
        scalars = len(stencil.parameters) + len(stencil.signals)
        self.cell, *larger = (
            Expressions(self.stage.program, c_type, lanes, *block, scalars) for block in _blocks(stencil, lanes)
        )
        self.loops = [self.cell, *(one for one in larger if one.shares_rows)]
        self.once = f", const {c_type} *once" if self.cell.once else ""
        self.row = ", long y, long k" if self.cell.in_row else ""

    def lines(self) -> Iterator[str]:
        """Yield the functions that update rows, and the function that updates a block. If the boundary needs a function
        for single cells, yield that function first."""
        if self.radius_x > 0 and any(side != "fixed" for side in self.boundary.x):
            yield from self._cell_function()
        for code in self.loops:
            yield from self._row_function(code)
            yield from self._call_function(code)
        yield from self._block_function()

    @property
    def _once(self) -> str:
        """The C argument that passes the values that are computed once per call of the kernel."""
        return ", once" if self.once else ""

    def _row(self, place: Place = (0, 0)) -> str:
        """The C arguments that pass the row and the plane of an update, if an operation depends on the row or the
        plane."""
        plane, row = place
        return f", {plus('y', row)}, {plus('k', plane)}" if self.row else ""

    def _targets(self, code: Expressions) -> Iterator[tuple[int, int, Place]]:
        """Yield three values for each row that a row function writes: the number of the row, the number of the target,
        and the place of the row."""
        every = ((j, place) for j in range(len(self.in_place)) for place in code.places)
        return ((n, *one) for n, one in enumerate(every))

    def _row_arguments(self, code: Expressions) -> str:
        """Return the parameters of a row function. In the names of the parameters, q stands for target rows, p for rows
        with the values of the rim, and r for rows that are read."""
        alone = "" if self.reads_target else "restrict "
        targets = "".join(
            f", {self.type} *{alone}q{n}, const {self.type} *{alone}p{n}" for n, _, _ in self._targets(code)
        )
        rows = "".join(f", const {self.type} *{alone}r{i}" for i in range(len(code.rows)))
        return f"const struct outcrop_block *b{self.once}, const char *ahead{self.row}{targets}{rows}"

    def _cell_function(self) -> Iterator[str]:
        low, high = self.boundary.x
        rows = "".join(f", const {self.type} *r{i}" for i in range(len(self.cell.rows)))
        outputs = "".join(f", {self.type} *e{j}" for j in range(len(self.in_place)))
        arguments = f"const struct outcrop_block *b{self.once}{self.row}, long x{outputs}{rows}"
        yield f"static void cell_{self.number}({arguments}) {{"
        yield f"  const {self.type} *s = b->scalars;"
        yield "  (void)s;"
        yield from self.cell.uniforms()
        yield from self.cell.row_values()
        mapping = "wrapped" if "periodic" in (low, high) else "mirrored"
        yield from self.cell.cell_operations(lambda dx: f"{mapping}(x + {dx}, b->nx)" if dx else "x")
        for j, place in enumerate(self.stage.program.results):
            yield f"  *e{j} = {self.cell.scalar(place)};"
        yield "}"

    def _row_function(self, code: Expressions) -> Iterator[str]:
        yield f"static inline void row_{self.number}_{code.name}({self._row_arguments(code)}) {{"
        yield f"  const {self.type} *s = b->scalars;"
        yield "  (void)s;"
        yield from code.uniforms()
        yield from code.row_values()
        yield from self._take_edges(code)
        yield from code.first_vectors()
        yield f"  for (long x = b->x0; x < b->x1; x += {code.lanes}) {{"
        yield f"    if (ahead) __builtin_prefetch(ahead + x * (long)sizeof({self.type}), 0, 2);"
        yield from code.operations()
        for n, j, place in self._targets(code):
            yield f"    *(v *)(q{n} + x) = {code.vector(self.stage.program.results[j], place)};"
        yield from code.move_along()
        yield "  }"
        yield from self._put_edges(code)
        yield "}"
        yield ""

    def _edges(self) -> list[tuple[Side, str, str, str]]:
        """Return four values for each of the two edges of a row: the boundary, the name, the first cell, and the first
        cell after the edge. The edges contain only cells from x0 to x1, because other calls of the kernel update the
        other cells."""
        radius = self.radius_x
        if not radius:
            return []
        low_side, high_side = self.boundary.x
        # In a short row, both edges can contain the same cells. If one of the sides is fixed, the cells that are in
        # both edges belong to the rim and are not computed.
        if high_side == "fixed" and low_side != "fixed":
            high_first = f"within(b->nx - {radius}, 0, b->nx)"
            low_end = f"within({radius}, 0, {high_first})"
        else:
            low_end = f"within({radius}, 0, b->nx)"
            high_first = f"within(b->nx - {radius}, {low_end}, b->nx)"
        clip = "within({}, b->x0, b->x1)"
        return [
            (low_side, "l", clip.format(0), clip.format(low_end)),
            (high_side, "h", clip.format(high_first), clip.format("b->nx")),
        ]

    def _take_edges(self, code: Expressions) -> Iterator[str]:
        """Yield the code that computes or saves the cells at both ends of the rows. If no field is updated in place,
        cells of the rim are not saved: the kernel can copy them after the rows are stored."""
        for side, name, first, end in self._edges():
            yield f"  const long {name}0 = {first}, {name}1 = {end};"
            if side == "fixed" and not any(self.in_place):
                continue
            for n, _, _ in self._targets(code):
                yield f"  {self.type} {name}v{n}[{self.radius_x}];"
            yield f"  for (long x = {name}0; x < {name}1; x++) {{"
            if side == "fixed":
                for n, _, _ in self._targets(code):
                    yield f"    ONE_BY_ONE; {name}v{n}[x - {name}0] = p{n}[x];"
            else:
                for place in code.places:
                    outputs = "".join(f", &{name}v{n}[x - {name}0]" for n, _, at in self._targets(code) if at == place)
                    rows = "".join(f", r{code.number(row, place)}" for row in self.cell.rows)
                    yield f"    cell_{self.number}(b{self._once}{self._row(place)}, x{outputs}{rows});"
            yield "  }"

    def _put_edges(self, code: Expressions) -> Iterator[str]:
        targets = list(self._targets(code))
        for side, name, _, _ in self._edges():
            for n, _, _ in targets:
                copied = side == "fixed" and not any(self.in_place)
                value = f"p{n}[x]" if copied else f"{name}v{n}[x - {name}0]"
                yield f"  for (long x = {name}0; x < {name}1; x++) {{ ONE_BY_ONE; q{n}[x] = {value}; }}"
        yield "  for (long x = b->nx > b->x0 ? b->nx : b->x0; x < b->x1; x++) {"
        for n, _, _ in targets:
            yield f"    ONE_BY_ONE; q{n}[x] = 0;"
        yield "  }"

    def _block_function(self) -> Iterator[str]:
        """Yield the function with the signature of a kernel. If too few rows remain for a loop over several rows, a
        loop over fewer rows updates the remaining rows."""
        calls = {code.rows_at_once * code.planes_at_once: f"call_{self.number}_{code.name}" for code in self.loops}
        yield f"void {symbol(self.number)}(const struct outcrop_block *b) {{"
        if self.once:
            yield from self.cell.computed_once()
        arguments = f"(b{self._once}, NEXT_AHEAD, y"
        yield "  const void *const *next = b->prefetch, *const *end = next + b->prefetch_rows;"
        yield "  long y = b->y0;"
        if 4 in calls:
            yield "  if (b->rows_at_once >= 4)"
            yield "    for (; y + 2 <= b->y1; y += 2) {"
            yield "      long k = 0;"
            yield f"      for (; k + 2 <= b->planes; k += 2) {calls[4]}{arguments}, k);"
            yield f"      for (; k < b->planes; k++) {calls[1]}{arguments}, k), {calls[1]}{arguments} + 1, k);"
            yield "    }"
        yield "  for (; y < b->y1; y++) {"
        yield "    long k = 0;"
        if 2 in calls:
            yield "    if (b->rows_at_once >= 2)"
            yield f"      for (; k + 2 <= b->planes; k += 2) {calls[2]}{arguments}, k);"
        yield f"    for (; k < b->planes; k++) {calls[1]}{arguments}, k);"
        yield "  }"
        yield "}"
        yield ""

    def _call_function(self, code: Expressions) -> Iterator[str]:
        head = f"static inline void call_{self.number}_{code.name}"
        yield f"{head}(const struct outcrop_block *b{self.once}, const char *ahead, long y, long k) {{"
        arguments = []
        for _, j, (dz, dy) in self._targets(code):
            target = self.stage.targets[j]
            arguments.append(f"({self.type} *)b->target[{j}][k + {dz}] + (y + {dy}) * b->pitch")
            arguments.append(self._row_pointer((target, 0), dz, dy))
        arguments += [self._row_pointer(*row) for row in code.rows]
        listed = ",\n      ".join(arguments)
        yield f"  row_{self.number}_{code.name}(b{self._once}, ahead{self._row()}, {listed});"
        yield "}"

    def _row_pointer(self, operand: tuple[int, int], dz: int, dy: int) -> str:
        low, high = self.boundary.y
        row = f"(y + {dy})" if dy else "y"
        if dy and (low, high) != ("fixed", "fixed"):
            row = f"{'wrapped' if low == 'periodic' else 'mirrored'}(y + {dy}, b->ny)"
        return f"(const {self.type} *)b->source[{self.stage.operands.index(operand)}][k + {dz}] + {row} * b->pitch"
